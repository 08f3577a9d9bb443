// A model with a cache of its own, run on prompts as an engine would run it, to compare it with a reference.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "api/error.h"
#include "cache/hybrid_cache.h"
#include "runner/golden/golden_file.h"
#include "runner/kernels/thread_pool.h"
#include "runner/models/model.h"

namespace quire::runner::golden {

// What the model made of one prompt.
struct PromptRun {
  std::vector<float> logits;            // [logit_rows, vocab]
  std::vector<models::TokenId> greedy;  // as many as asked for
  std::vector<float> last_logits;       // [vocab] after the whole continuation

  bool operator==(const PromptRun&) const = default;
};

// One thread's. The pool outlives it.
class GoldenRun {
 public:
  // A cache with room for `tokens` tokens of each of `sequences` sequences.
  static api::Result<GoldenRun> Open(const std::filesystem::path& model, ThreadPool& pool, int32_t sequences,
                                     int64_t tokens);

  const models::Model& model() const { return *model_; }

  // Prefill in chunks of `chunk` tokens (0 = at once), then greedy decoding of `steps` tokens, each fed back.
  // REQUIRES: ids are in the vocabulary; rows are positions in the prompt, ascending.
  PromptRun RunPrompt(std::span<const models::TokenId> ids, std::span<const int32_t> rows, size_t steps,
                      size_t chunk, models::Probe* probe = nullptr);

  // Greedy continuations of many prompts, decoded together as one ragged batch: each stops before an id of
  // `stop` or at `steps_max` tokens. REQUIRES: no more prompts than sequences.
  std::vector<std::vector<models::TokenId>> Continue(std::span<const std::vector<models::TokenId>> prompts,
                                                     std::span<const models::TokenId> stop, size_t steps_max);

 private:
  struct Part {  // of a batch
    cache::Sequence* sequence;
    std::vector<models::TokenId> tokens;
    std::vector<int32_t> logit_rows;  // within tokens
  };

  GoldenRun(std::unique_ptr<models::Model> model, std::unique_ptr<cache::HybridCache> cache, ThreadPool& pool)
      : model_(std::move(model)), cache_(std::move(cache)), pool_(&pool) {}

  // One step; the logits of all parts' rows, part by part.
  std::vector<float> Step(std::span<const Part> parts, models::Probe* probe = nullptr);

  std::unique_ptr<models::Model> model_;
  std::unique_ptr<cache::HybridCache> cache_;
  ThreadPool* pool_;
};

// The id of the largest logit, the lowest one among equals.
models::TokenId Argmax(std::span<const float> logits);

// Largest |a[i] - b[i]|; infinity when sizes differ or something is not a number.
float MaxAbsDifference(std::span<const float> a, std::span<const float> b);

}  // namespace quire::runner::golden
