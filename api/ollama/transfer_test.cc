#include "api/ollama/transfer.h"

#include <gtest/gtest.h>

namespace quire::api::ollama {
namespace {

TEST(Transfer, IsRead) {
  const auto parsed = ParseTransfer(R"({"name":"x","insecure":true,"stream":false})");
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->model, "x");
  EXPECT_TRUE(parsed->insecure);
  EXPECT_FALSE(parsed->stream);
  EXPECT_TRUE(ParseTransfer(R"({"model":"x"})")->stream);
  EXPECT_FALSE(ParseTransfer(R"({"stream":false})"));
  EXPECT_EQ(ParseTransfer(R"({"model":"x","insecure":1})").error().field, "insecure");
}

}  // namespace
}  // namespace quire::api::ollama
