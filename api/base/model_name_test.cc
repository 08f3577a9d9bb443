#include "api/base/model_name.h"

#include <gtest/gtest.h>

#include <string>

namespace quire::api {
namespace {

struct Case {
  std::string text, host, name_space, model, tag, display;
};

TEST(ModelName, FillsInDefaultsAndShowsTheShortestFullForm) {
  const std::string registry = "registry.ollama.ai";
  const std::vector<Case> cases = {
      {"quire-demo", registry, "library", "quire-demo", "latest", "quire-demo:latest"},
      {"quire-demo:8b", registry, "library", "quire-demo", "8b", "quire-demo:8b"},
      {"library/a", registry, "library", "a", "latest", "a:latest"},
      {"me/a:t", registry, "me", "a", "t", "me/a:t"},
      {"Registry.Ollama.AI/library/a", "Registry.Ollama.AI", "library", "a", "latest", "a:latest"},
      {"hf.co/org/Repo.Name-GGUF:Q4_K_M", "hf.co", "org", "Repo.Name-GGUF", "Q4_K_M",
       "hf.co/org/Repo.Name-GGUF:Q4_K_M"},
      {"localhost:5000/library/a", "localhost:5000", "library", "a", "latest",
       "localhost:5000/library/a:latest"},
      {"a:local", registry, "library", "a", "latest", "a:latest"},
      {"a:8b:local", registry, "library", "a", "8b", "a:8b"},
      {"_a", registry, "library", "_a", "latest", "_a:latest"},
  };
  for (const Case& c : cases) {
    const auto name = ParseModelName(c.text);
    ASSERT_TRUE(name) << c.text;
    EXPECT_EQ(name->host, c.host) << c.text;
    EXPECT_EQ(name->name_space, c.name_space) << c.text;
    EXPECT_EQ(name->model, c.model) << c.text;
    EXPECT_EQ(name->tag, c.tag) << c.text;
    EXPECT_EQ(name->Display(), c.display);
  }
}

TEST(ModelName, RefusesWhatIsNotAName) {
  const std::string long_part(81, 'a');
  for (const std::string& text : {
           std::string("!!"),         std::string("a/b/c/d:!"), std::string("a/b/c/d"),
           std::string("."),          std::string(".."),        std::string("../a"),
           std::string("a/../b"),     std::string("-a"),        std::string("a:"),
           std::string(":a"),         std::string("/a"),        std::string("a/"),
           std::string("a//b"),       std::string("my.ns/a"),   std::string("a b"),
           std::string("a\0b", 3),    std::string("a%2e"),      std::string("m\xC3\xA9"),
           std::string("a:b:c"),      std::string("ho:st/a"),   long_part,
           "a:" + long_part,          long_part + "/a",         std::string(351, 'h') + "/n/a",
           std::string(1 << 20, '/'),
       }) {
    const auto name = ParseModelName(text);
    ASSERT_FALSE(name) << text;
    EXPECT_EQ(name.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(name.error().message, "invalid model name");
  }
  EXPECT_TRUE(ParseModelName(std::string(80, 'a')));
  EXPECT_TRUE(ParseModelName(std::string(350, 'h') + "/n/a"));
}

TEST(ModelName, SaysThatAnEmptyNameIsMissing) {
  const auto name = ParseModelName("");
  ASSERT_FALSE(name);
  EXPECT_EQ(name.error().message, "model is required");
  EXPECT_EQ(name.error().code, ErrorCode::kInvalidArgument);
}

TEST(ModelName, MatchesWithoutRegardToCaseAndKeepsIt) {
  const auto a = ParseModelName("Quire-Demo:Latest");
  const auto b = ParseModelName("quire-demo");
  ASSERT_TRUE(a && b);
  EXPECT_TRUE(a->Matches(*b));
  EXPECT_EQ(a->Display(), "Quire-Demo:Latest");
  EXPECT_FALSE(a->Matches(*ParseModelName("quire-demo:other")));
  EXPECT_FALSE(a->Matches(*ParseModelName("me/quire-demo")));
}

}  // namespace
}  // namespace quire::api
