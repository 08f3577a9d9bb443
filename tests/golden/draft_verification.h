// What a target model would accept of its draft sources' tokens, position by position of its own greedy
// answers. Each draft is scored on a fork (HybridCache::SpeculateIsolated), so every source is asked at every
// position.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "api/base/error.h"
#include "runner/draft/drafter.h"
#include "tests/golden/golden_run.h"

namespace quire::runner::golden {

constexpr size_t kVerifiedTokens = 48;  // of each answer
constexpr int32_t kDraftTokens = 8;     // proposed at a position, at most

struct DraftVerification {
  struct Count {
    size_t proposed = 0, accepted = 0;
  };
  Count lookup, drafter;  // prompt lookup; the drafter, where there is one
  // The answers, the logits of each position, those of accepted draft tokens and the caches behind each
  // answer have the bits of a run without drafts.
  bool bit_identical = true;
  // One per position: "p0@12: prompt lookup 0/0 [], mtp 2/8 [51 7] 9 9 4 80 4 3" behind token 12 of the first
  // prompt and its answer. The accepted draft tokens are in brackets, the others behind them.
  std::vector<std::string> lines;

  std::string Verdict() const;
};

struct DraftPrompts {
  std::string target;  // of a draft model's golden: the family whose directory is beside it
  std::vector<std::vector<models::TokenId>> prompts;
};

// The ids of the prompts of `directory`/golden.json, which needs nothing else. kNotFound and kBadModel name
// the file.
api::Result<DraftPrompts> ReadDraftPrompts(const std::filesystem::path& directory);

// A run of the target with room for the prompts, their answers and drafts. kBadModel: the model, or an id
// outside its vocabulary.
api::Result<GoldenRun> OpenTarget(const std::filesystem::path& target, const DraftPrompts& prompts,
                                  ThreadPool& pool);

// The drafter in `model`: a head or a model with the target's vocabulary. Where `model` is empty, the MTP
// layer of `target_path`, null if it has none.
api::Result<std::unique_ptr<draft::Drafter>> OpenDrafter(const std::filesystem::path& model,
                                                         const std::filesystem::path& target_path,
                                                         GoldenRun& target);

// `drafter` may be null. REQUIRES: OpenTarget made room for the prompts.
DraftVerification VerifyDrafts(GoldenRun& target, draft::Drafter* drafter, const DraftPrompts& prompts,
                               ThreadPool& pool);

}  // namespace quire::runner::golden
