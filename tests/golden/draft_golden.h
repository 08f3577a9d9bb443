// Drafts of a reference implementation for a target model: rounds of a few steps each behind recorded
// prompts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "api/base/error.h"
#include "runner/kernels/thread_pool.h"
#include "tests/golden/compare.h"

namespace quire::runner::golden {

struct DraftStep {
  models::TokenId token = 0;       // goes in
  models::TokenId draft = 0;       // comes out
  std::vector<float> embedding;    // [target hidden] of the token
  std::vector<float> logits;       // [vocab]
  std::vector<float> next_hidden;  // [target hidden]
};

struct DraftRound {
  std::vector<models::TokenId> ids;  // the prompt
  std::vector<float> target_hidden;  // [target hidden] final state of its last token
  // The target's keys and values that the reference used, [kv_heads, tokens, head_dim], those of its latest
  // tokens.
  std::vector<float> sliding_k, sliding_v, full_k, full_v;
  std::vector<DraftStep> steps;
};

struct DraftGolden {
  std::string target;  // the family whose directory lies beside this one's
  std::vector<DraftRound> rounds;
};

// Whether the directory's golden is of drafts.
bool IsDraftGolden(const std::filesystem::path& directory);
api::Result<DraftGolden> ReadDraftGolden(const std::filesystem::path& directory);

// Runs the draft model on the recorded keys, and on those of the target itself where its windows had not
// slid. A model without the reference's clustered head is compared where the reference's clusters were.
// kBadModel: a model does not load, or not fit.
api::Result<Comparison> CompareDrafts(const std::filesystem::path& model, const std::filesystem::path& target,
                                      const DraftGolden& golden, ThreadPool& pool);

}  // namespace quire::runner::golden
