#include "server/registry/challenge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire::server::registry {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

TEST(ParseChallenge, ReadsWhatRegistriesSend) {
  const Challenge challenge = ParseChallenge(
      R"(Bearer realm="https://auth.example/token?a=b,c",Service=registry , scope="x:y:pull")");
  EXPECT_EQ(challenge.scheme, "bearer");
  EXPECT_THAT(challenge.parameters, ElementsAre(Pair("realm", "https://auth.example/token?a=b,c"),
                                                Pair("scope", "x:y:pull"), Pair("service", "registry")));
  EXPECT_EQ(challenge.Parameter("realm"), "https://auth.example/token?a=b,c");
  EXPECT_EQ(challenge.Parameter("error"), "");
}

TEST(ParseChallenge, UnescapesQuotedValues) {
  EXPECT_EQ(ParseChallenge(R"(Bearer realm="a\"b\\c",service="d")").Parameter("realm"), R"(a"b\c)");
  EXPECT_EQ(ParseChallenge(R"(Bearer realm="a\"b\\c",service="d")").Parameter("service"), "d");
}

TEST(ParseChallenge, StopsAtTheFirstTextThatIsNoParameter) {
  EXPECT_THAT(ParseChallenge("").parameters, IsEmpty());
  EXPECT_EQ(ParseChallenge("  Basic").scheme, "basic");
  EXPECT_EQ(ParseChallenge(R"(, service="a")"), Challenge()) << "no scheme, no challenge";
  EXPECT_THAT(ParseChallenge(R"(Basic realm="x", Bearer realm="y")").parameters,
              ElementsAre(Pair("realm", "x")));
  EXPECT_THAT(ParseChallenge(R"(Bearer realm="never ends)").parameters, IsEmpty());
  EXPECT_THAT(ParseChallenge("Bearer a=1,(=2,b=3").parameters, ElementsAre(Pair("a", "1")));
}

}  // namespace
}  // namespace quire::server::registry
