// A model with a cache of its own, run on prompts as an engine would run it, to compare it with a reference.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "cache/hybrid_cache.h"
#include "runner/kernels/thread_pool.h"
#include "runner/models/model.h"
#include "tests/golden/golden_file.h"
#include "tests/golden/state_dump.h"

namespace quire::runner::golden {

// The model's results for one prompt.
struct PromptRun {
  std::vector<float> logits;            // [logit_rows, vocab]
  std::vector<models::TokenId> greedy;  // as many as asked for
  std::vector<float> last_logits;       // [vocab] after the whole continuation

  bool operator==(const PromptRun&) const = default;
};

// What one step computed.
struct Evaluated {
  std::vector<float> logits;  // [logit rows, vocab]
  std::vector<float> hidden;  // [ids, hidden_size]: final states
};

// Offsets where going on from a snapshot gave the bits of the prompt in one go, and those where it did not.
struct RestoreCheck {
  size_t same = 0;
  std::vector<size_t> different;  // each at most once per kind of snapshot
};

// One thread's. The pool outlives it.
class GoldenRun {
 public:
  // A cache with room for `tokens` tokens of each of `sequences` sequences, and for what the checks below
  // keep. `quantize`: a type of weights::LoadQuantizationNames(), or empty.
  static api::Result<GoldenRun> Open(const std::filesystem::path& model, ThreadPool& pool, int32_t sequences,
                                     int64_t tokens, api::KvType kv_type = api::KvType::kF32,
                                     std::string_view quantize = {});

  const models::Model& model() const { return *model_; }
  cache::HybridCache& cache() { return *cache_; }

  // The images of the prompt that is run from now on, or null. They outlive its runs. Chunks and restored
  // offsets do not cut an image whose rows see each other.
  void SetImages(const PromptImages* images) { images_ = images; }

  // Appends the ids to the sequence in one step, with logits of the last `logit_rows`.
  Evaluated Append(cache::Sequence& sequence, std::span<const models::TokenId> ids, size_t logit_rows);

  // Prefill in chunks of `chunk` tokens (0 = at once), then greedy decoding of `steps` tokens, each fed back.
  // REQUIRES: ids are in the vocabulary; rows are positions in the prompt, ascending.
  PromptRun RunPrompt(std::span<const models::TokenId> ids, std::span<const int32_t> rows, size_t steps,
                      size_t chunk, models::ActivationHook* hook = nullptr);

  // The logits of the prompts' logit_rows, prompt by prompt, from one step over all of them.
  // REQUIRES: no more prompts than sequences.
  std::vector<float> RunTogether(std::span<const GoldenPrompt> prompts);

  // Greedy continuations of many prompts, decoded together as one ragged batch: each stops before an id of
  // `stop` or at `steps_max` tokens. REQUIRES: no more prompts than sequences.
  std::vector<std::vector<models::TokenId>> Continue(std::span<const std::vector<models::TokenId>> prompts,
                                                     std::span<const models::TokenId> stop, size_t steps_max);

  // Calls fn(view of the caches, final hidden state of the last token) after prefill of the ids.
  void AfterPrompt(std::span<const models::TokenId> ids,
                   const std::function<void(const cache::StepView&, std::span<const float>)>& fn);

  // The final hidden states of all ids after prefill of them, [ids, hidden_size].
  std::vector<float> HiddenStates(std::span<const models::TokenId> ids);

  // The caches after prefill of the ids.
  StateDump States(std::span<const models::TokenId> ids);
  StateDump States(cache::Sequence& sequence);

  // Takes a snapshot at every offset inside the prompt, both captured on the way through one prefill and at
  // the end of a prefill up to there, and goes on from each. REQUIRES: at least 2 ids.
  RestoreCheck RestoreAtEveryOffset(std::span<const models::TokenId> ids);

 private:
  struct Part {  // of a batch
    cache::Sequence* sequence;
    std::vector<models::TokenId> tokens;
    std::vector<int32_t> logit_rows;  // within tokens
    bool last_hidden = false;         // the final hidden state of the last token
    bool all_hidden = false;          // of all tokens
    const PromptImages* images = nullptr;
  };

  GoldenRun(std::unique_ptr<models::Model> model, std::unique_ptr<cache::HybridCache> cache, ThreadPool& pool)
      : model_(std::move(model)), cache_(std::move(cache)), pool_(&pool) {}

  // Whether a sequence restored from the snapshot goes on as `logits` [ids, vocab] have it.
  bool GoesOnAlike(const cache::Snapshot& snapshot, std::span<const models::TokenId> ids,
                   std::span<const float> logits);

  // The end of the image that [.., end) would cut, or `end`.
  size_t WithoutCut(size_t end) const;
  void AddImages(const Part& part, models::Batch* batch) const;
  void AddPositions(const Part& part, models::Batch* batch) const;

  // One step; the logits of all parts' rows, part by part. `hidden`: the states asked for, likewise.
  std::vector<float> Step(std::span<const Part> parts, models::ActivationHook* hook = nullptr,
                          std::vector<float>* hidden = nullptr);

  std::unique_ptr<models::Model> model_;
  std::unique_ptr<cache::HybridCache> cache_;
  ThreadPool* pool_;
  const PromptImages* images_ = nullptr;
};

// The id of the largest logit, the lowest one among equals.
models::TokenId Argmax(std::span<const float> logits);

// Largest |a[i] - b[i]|; infinity when sizes differ or something is not a number.
float MaxAbsDifference(std::span<const float> a, std::span<const float> b);

}  // namespace quire::runner::golden
