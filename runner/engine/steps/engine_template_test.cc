// Templates that rewrite earlier turns: a longer conversation does not begin with the shorter one's
// prompt. What both begin with is still found, and the reply says where they part.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "runner/engine/testing/engine_harness.h"

namespace quire::runner::engine {
namespace {

namespace fs = std::filesystem;

// A model whose template marks the last message, as templates do that keep thoughts for the last turn only.
class Rewriting {
 public:
  explicit Rewriting(const fs::path& model) : path_(OwnFolder()) {
    for (const auto& entry : fs::directory_iterator(model)) {
      if (entry.path().filename() == "chat_template.jinja") continue;
      fs::create_symlink(fs::absolute(entry.path()), path_ / entry.path().filename());
    }
    std::ofstream(path_ / "chat_template.jinja")
        << "{% for m in messages %}[{{ m.role }}] {{ m.content }}{% if loop.last %} (think){% endif %}\n"
        << "{% endfor %}[assistant] ";
  }
  ~Rewriting() { fs::remove_all(path_); }
  Rewriting(const Rewriting&) = delete;
  Rewriting& operator=(const Rewriting&) = delete;
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

const api::Message kQuestion = {
    .role = "user", .content = "What is the capital of France, and why is it so far from the sea?"};

api::Request ChatRequest(std::vector<api::Message> messages) {
  api::Request request = Logged(Greedy("", 8));
  request.prompt = api::ChatPrompt{std::move(messages)};
  request.return_context = true;
  return request;
}

std::vector<api::TokenId> PromptOf(const Outcome& outcome) {
  const auto& tokens = outcome.finished->context;
  return {tokens.begin(), tokens.begin() + outcome.finished->usage.prompt_tokens};
}

// How many tokens the second turn shares with what the first left, and what of them it took over.
struct Turns {
  int32_t shared = 0, cached = 0;
  std::string miss;
  std::vector<float> logprobs, cold;
};

Turns TwoTurns(const fs::path& model) {
  const Rewriting rewriting(model);
  const EngineHarnessSetup setup{.model = rewriting.path(), .model_stops = false};
  EngineHarness harness(setup);
  const Outcome first = harness.Generate(ChatRequest({kQuestion}));
  const auto second_request = ChatRequest(
      {kQuestion, {.role = "assistant", .content = first.text()}, {.role = "user", .content = "And then?"}});
  const Outcome second = harness.Generate(second_request);
  EXPECT_TRUE(first.finished && second.finished);
  const auto& before = first.finished->context;
  const auto after = PromptOf(second);
  EngineHarness other(setup);
  return {static_cast<int32_t>(std::ranges::mismatch(before, after).in1 - before.begin()),
          second.ready->cached_tokens, second.ready->miss, second.logprobs(),
          other.Generate(second_request).logprobs()};
}

TEST(RewritingTemplate, WhereCachesCanBeCutAllThatIsSharedIsReused) {
  const Turns turns = TwoTurns("tests/data/models/llama");
  EXPECT_GT(turns.shared, 10);
  EXPECT_EQ(turns.cached, turns.shared);
  EXPECT_EQ(turns.miss, "diverged@" + std::to_string(turns.shared));
  EXPECT_EQ(turns.logprobs, turns.cold);
}

TEST(RewritingTemplate, ElsewhereTheReplySaysWhereTheyPart) {
  const Turns turns = TwoTurns("tests/data/models/lfm2");
  EXPECT_GT(turns.shared, 10);
  EXPECT_LE(turns.cached, turns.shared);
  EXPECT_TRUE(turns.miss == "layout" || turns.miss == "diverged@" + std::to_string(turns.shared))
      << turns.miss;
  EXPECT_EQ(turns.logprobs, turns.cold);
}

}  // namespace
}  // namespace quire::runner::engine
