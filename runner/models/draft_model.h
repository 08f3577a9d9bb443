// Draft models: small models that predict the next tokens of a target model from its own states.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "api/base/error.h"
#include "cache/write.h"
#include "runner/models/model.h"

namespace quire::runner::models {

// Engine thread only. The weights stay mapped while the model lives; the target outlives it.
class DraftModel {
 public:
  virtual ~DraftModel() = default;

  virtual const std::string& architecture() const = 0;
  virtual int64_t parameters() const = 0;
  virtual int64_t weight_bytes() const = 0;

  // Drafts the tokens after `token`, which the target has chosen but not yet evaluated; nothing is written to
  // its caches. `target` shows the cached tokens of one sequence (HybridCache::View), at least one. `hidden`
  // [target.hidden_size()] is the target's final hidden state of the last cached token for the first draft of
  // a round, and comes back as what the next draft wants there. `logits` [target.vocab_size()].
  virtual void Draft(const cache::StepView& target, ThreadPool& pool, TokenId token, std::span<float> hidden,
                     std::span<float> logits) = 0;
};

// A multi-token prediction (MTP) layer of the target model, with keys and values of its own. Engine thread
// only; the target, whose embedding and head it uses, outlives it.
class MtpLayer {
 public:
  virtual ~MtpLayer() = default;

  virtual const cache::Layout& cache_layout() const = 0;
  virtual int64_t weight_bytes() const = 0;
  // As Model::Forward, but each row is a token and `before` [rows, hidden_size], the final hidden state of
  // the token that it follows: the target's, or for a token that was itself predicted this layer's own.
  virtual void Forward(const Batch& batch, std::span<const float> before, const cache::StepView& step,
                       ThreadPool& pool, const Outputs& outputs) = 0;
};

// That of the target's own files, null where they have none. `kv_type` as of LoadModel. kBadModel.
api::Result<std::unique_ptr<MtpLayer>> LoadMtpLayer(std::shared_ptr<const weights::ModelFiles> files,
                                                    const Model& target,
                                                    api::KvType kv_type = api::KvType::kF32);

// Whether the files are of one of these, rather than of a model that could also answer alone.
bool IsDraftModel(const weights::ModelFiles& files);

// kBadModel names the file and the reason, also where the draft model does not fit the target.
api::Result<std::unique_ptr<DraftModel>> LoadDraftModel(std::shared_ptr<const weights::ModelFiles> files,
                                                        const Model& target);

}  // namespace quire::runner::models
