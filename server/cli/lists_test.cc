#include "server/cli/lists.h"

#include <gtest/gtest.h>

namespace quire::cli {
namespace {

constexpr Seconds kNow(std::chrono::seconds(1'800'000'000));  // 2027-01-15T08:00:00Z

TEST(ListTable, ShowsNameIdSizeAndAge) {
  const auto table = ListTable(R"({"models":[
      {"name":"quire-demo:latest","digest":"0123456789abcdef","size":10843680,"modified_at":"2027-01-12T08:00:00.5Z"},
      {"name":"other:7b","digest":"ffffffffffffffff","size":1900000000,"modified_at":"2027-01-15T08:59:00+01:00"}]})",
                               "", kNow);
  EXPECT_EQ(*table,
            "NAME                 ID              SIZE      MODIFIED\n"
            "quire-demo:latest    0123456789ab    11 MB     3 days ago\n"
            "other:7b             ffffffffffff    1.9 GB    1 minute ago\n");
}

TEST(ListTable, FiltersByPrefix) {
  const auto table = ListTable(R"({"models":[{"name":"a:latest"},{"name":"b:latest"}]})", "b", kNow);
  EXPECT_EQ(table->find("a:latest"), std::string::npos);
  EXPECT_NE(table->find("b:latest"), std::string::npos);
}

TEST(PsTable, ShowsContextAndWhenItUnloads) {
  const auto table = PsTable(R"({"models":[
      {"name":"m:latest","digest":"0123456789abcdef","size":20000000,"context_length":4096,
       "expires_at":"2027-01-15T08:04:30Z"},
      {"name":"p:latest","digest":"0123456789abcdef","size":20000000,"context_length":640,
       "expires_at":"2318-01-15T08:04:30Z"}]})",
                             kNow);
  EXPECT_EQ(*table,
            "NAME        ID              SIZE     PROCESSOR    CONTEXT    UNTIL\n"
            "m:latest    0123456789ab    20 MB    100% CPU     4096       4 minutes from now\n"
            "p:latest    0123456789ab    20 MB    100% CPU     640        Forever\n");
}

TEST(PsTable, ShowsHowFarALoadIs) {
  const auto table = PsTable(R"({"models":[
      {"name":"m:latest","digest":"0123456789abcdef","size":20000000,"context_length":0,
       "expires_at":"2318-01-15T08:04:30Z","loading":{"progress":0.35,"stage":"quantizing weights"}}]})",
                             kNow);
  EXPECT_NE(table->find("Loading 35%\n"), std::string::npos) << *table;
}

TEST(Tables, RefuseWhatIsNotAList) {
  EXPECT_FALSE(ListTable("<html>", "", kNow).has_value());
  EXPECT_FALSE(PsTable(R"({"models":null})", kNow).has_value());
}

}  // namespace
}  // namespace quire::cli
