#include "tests/golden/draft_verification.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/data/test_data.h"

namespace quire::runner::golden {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr const char* kGemma4 = "tests/data/models/gemma4_e";
constexpr const char* kAssistant = "tests/data/models/gemma4_assistant";

// Prompts of other lengths than a page, and beyond the windows of small checkpoints.
DraftPrompts TwoPrompts() {
  DraftPrompts prompts;
  prompts.prompts = {{5}, {}};
  for (models::TokenId i = 0; i < 37; ++i) prompts.prompts[1].push_back(3 + i * i % 53);
  return prompts;
}

class DraftVerificationTest : public testing::TestWithParam<const char*> {};

// A model drafts for itself: every token is accepted, and each was scored on a fork behind which the target
// goes on as if there had been none.
TEST_P(DraftVerificationTest, AModelAcceptsItsOwnTokensAndTheTargetKeepsItsBits) {
  const fs::path path = test_data::FindOrTiny(GetParam());
  ASSERT_FALSE(path.empty()) << GetParam();
  const DraftPrompts prompts = TwoPrompts();
  ThreadPool pool(2);
  auto run = OpenTarget(path, prompts, pool);
  ASSERT_TRUE(run) << run.error().message;
  const auto drafter = OpenDrafter(path, path, *run);
  ASSERT_TRUE(drafter) << drafter.error().message;
  const DraftVerification result = VerifyDrafts(*run, drafter->get(), prompts, pool);
  EXPECT_TRUE(result.bit_identical) << testing::PrintToString(result.lines);
  EXPECT_EQ(result.drafter.proposed, prompts.prompts.size() * kVerifiedTokens * kDraftTokens);
  EXPECT_EQ(result.drafter.accepted, result.drafter.proposed) << testing::PrintToString(result.lines);
  EXPECT_EQ(result.lines.size(), prompts.prompts.size() * kVerifiedTokens);
  EXPECT_THAT(result.lines[0], HasSubstr("p0@1: prompt lookup 0/0 []"));
}

INSTANTIATE_TEST_SUITE_P(Models, DraftVerificationTest,
                         testing::Values("models/lfm2", "models/llama", "models/mistral", "models/gemma4_e",
                                         "models/qwen3_next", "gguf/lfm2_k256.Q8_0.gguf"));

// Those that the reference recorded behind each prompt.
TEST(DraftVerification, AHeadProposesTheReferencesTokens) {
  const auto prompts = ReadDraftPrompts(kAssistant);
  ASSERT_TRUE(prompts) << prompts.error().message;
  EXPECT_EQ(prompts->target, "gemma4_e");
  ThreadPool pool(2);
  auto run = OpenTarget(kGemma4, *prompts, pool);
  ASSERT_TRUE(run) << run.error().message;
  const auto drafter = OpenDrafter(kAssistant, kGemma4, *run);
  ASSERT_TRUE(drafter) << drafter.error().message;
  const DraftVerification result = VerifyDrafts(*run, drafter->get(), *prompts, pool);
  EXPECT_TRUE(result.bit_identical) << testing::PrintToString(result.lines);
  EXPECT_EQ(result.drafter.proposed, prompts->prompts.size() * kVerifiedTokens * kDraftTokens);
  std::ifstream file(fs::path(kAssistant) / "golden.json");
  const auto golden = nlohmann::json::parse(file);
  for (size_t i = 0; i < prompts->prompts.size(); ++i) {
    std::string recorded;
    for (const auto& step : golden.at("prompts").at(i).at("steps"))
      recorded += " " + step.at("draft_token").dump();
    std::string line = result.lines[i * kVerifiedTokens];
    std::erase_if(line, [](char c) { return c == '[' || c == ']'; });
    // Behind a longer prompt the reference shows the head one token more of each window.
    if (prompts->prompts[i].size() >= 8) continue;
    EXPECT_THAT(line, HasSubstr(recorded + " "));
  }
}

// Does to the target what no drafter may.
class Meddler final : public draft::Drafter {
 public:
  explicit Meddler(cache::HybridCache& cache) : cache_(cache) {}
  const std::string& architecture() const override { return name_; }
  int64_t weight_bytes() const override { return 0; }
  draft::RequiredHidden required_hidden() const override { return draft::RequiredHidden::kNone; }
  bool follows() const override { return false; }
  std::unique_ptr<draft::DraftState> CreateState(const draft::DraftContext&) override {
    return std::make_unique<draft::DraftState>();
  }
  void ProposeDrafts(std::span<const draft::DraftRequest> requests, ThreadPool&) override {
    for (const draft::DraftRequest& request : requests) {
      request.draft_tokens->assign(1, 0);
      if (std::ssize(request.tokens) != 60) continue;
      ASSERT_TRUE(cache_.Truncate(*request.target, request.target->offset() - 1));
    }
  }
  void End(std::unique_ptr<draft::DraftState>, std::span<const models::TokenId>) override {}

 private:
  cache::HybridCache& cache_;
  const std::string name_ = "meddler";
};

TEST(DraftVerification, OtherBitsBehindADraftAreSeen) {
  const DraftPrompts prompts = TwoPrompts();
  ThreadPool pool(2);
  auto run = OpenTarget("tests/data/models/llama", prompts, pool);
  ASSERT_TRUE(run) << run.error().message;
  Meddler meddler(run->cache());
  const DraftVerification result = VerifyDrafts(*run, &meddler, prompts, pool);
  EXPECT_FALSE(result.bit_identical);
  EXPECT_THAT(result.Verdict(), HasSubstr("FAIL"));
  EXPECT_TRUE(VerifyDrafts(*run, nullptr, prompts, pool).bit_identical);
}

TEST(DraftVerification, PromptsOutsideTheVocabularyAreRefused) {
  DraftPrompts prompts = TwoPrompts();
  prompts.prompts[0][0] = 1 << 20;
  ThreadPool pool(1);
  const auto run = OpenTarget("tests/data/models/llama", prompts, pool);
  ASSERT_FALSE(run);
  EXPECT_THAT(run.error().message, HasSubstr("a prompt has the id 1048576"));
}

}  // namespace
}  // namespace quire::runner::golden
