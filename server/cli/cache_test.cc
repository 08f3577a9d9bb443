#include "server/cli/cache.h"

#include <gtest/gtest.h>

namespace quire::cli {
namespace {

constexpr const char* kList =
    R"({"bytes":5800000,"budget_bytes":20000000000,"files":7,"writing":true,"prefixes":[
    {"id":"0123456789abcdef","model":"quire-demo:latest","tokens":512,"bytes":5800000,"unused_seconds":7200,
     "hits":3,"tenant":"","salted":false},
    {"id":"fedcba9876543210","model":"other:7b","tokens":9,"bytes":312,"unused_seconds":0,"hits":0,
     "tenant":"aabbccddeeff","salted":true}]})";

TEST(PrefixTable, ShowsSizesModelsAgesAndHits) {
  EXPECT_EQ(
      *PrefixTable(kList, ""),
      "ID              MODEL                TOKENS    SIZE      HITS    USED                      TENANT\n"
      "0123456789ab    quire-demo:latest    512       5.8 MB    3       2 hours ago               -\n"
      "fedcba987654    other:7b             9         312 B     0       Less than a second ago    "
      "aabbccddeeff "
      "(salted)\n"
      "\n"
      "5.8 MB of 20 GB in 7 files\n");
}

TEST(PrefixTable, ShowsOneModelOnly) {
  const auto table = PrefixTable(kList, "quire-demo");
  EXPECT_NE(table->find("0123456789ab"), std::string::npos);
  EXPECT_EQ(table->find("other"), std::string::npos);
  EXPECT_FALSE(PrefixTable("no JSON", "").has_value());
}

TEST(PruneBody, SaysWhichPrefixes) {
  EXPECT_EQ(*PruneBody({.action = "prune", .arguments = {"0123"}, .model = "m", .unused = "36h"}),
            R"({"ids":["0123"],"model":"m","unused_seconds":129600})");
  EXPECT_EQ(*PruneBody({.action = "prune", .all = true}), R"({"all":true})");
}

TEST(PruneBody, RefusesWhatIsUnclear) {
  EXPECT_FALSE(PruneBody({.action = "prune"}).has_value());
  EXPECT_FALSE(PruneBody({.action = "prune", .model = "m", .all = true}).has_value());
  EXPECT_EQ(PruneBody({.action = "prune", .unused = "soon"}).error().message,
            "--unused must be a time such as 36h or 30m");
}

}  // namespace
}  // namespace quire::cli
