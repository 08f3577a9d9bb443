#include <algorithm>
#include <string>
#include <utility>

#include "runner/draft/cached_drafter.h"
#include "runner/draft/drafters.h"

namespace quire::runner::draft {
namespace {

constexpr int32_t kCatchUpMax = 512;  // tokens of one sequence computed in one go

class ModelDrafter final : public CachedDrafter {
 public:
  ModelDrafter(std::unique_ptr<models::Model> model, std::unique_ptr<cache::HybridCache> cache,
               const Options& options)
      : CachedDrafter(std::move(cache), options), model_(std::move(model)) {}

  const std::string& architecture() const override { return model_->architecture(); }
  int64_t weight_bytes() const override { return model_->weight_bytes(); }
  RequiredHidden required_hidden() const override { return RequiredHidden::kNone; }

  static Options OptionsFor(const models::Model& model, int32_t vocab, size_t cache_bytes) {
    return {.vocab = vocab, .logits = model.vocab_size(), .cache_bytes = cache_bytes};
  }

 private:
  Confirmed AddConfirmed(const DraftRequest& request, CachedDraftState& state) override;
  void PrepareDraftToken(size_t /*row*/) override {}
  void Forward(const cache::StepView& step, ThreadPool& pool, std::span<float> logits) override {
    model_->Forward(batch(), step, pool, models::Outputs(logits));
  }
  void Replay(size_t layer, std::byte* slot, std::span<const std::byte> inputs, int32_t tokens,
              ThreadPool& pool) override {
    model_->Replay(layer, slot, inputs, tokens, pool);
  }

  std::unique_ptr<models::Model> model_;
};

CachedDrafter::Confirmed ModelDrafter::AddConfirmed(const DraftRequest& request, CachedDraftState& state) {
  const auto from = static_cast<size_t>(state.sequence.offset());
  if (from >= request.tokens.size()) return {};
  const auto behind = static_cast<int32_t>(request.tokens.size() - from);
  const int32_t rows = std::min(behind, kCatchUpMax);
  const auto tokens = request.tokens.subspan(from, static_cast<size_t>(rows));
  batch().tokens.insert(batch().tokens.end(), tokens.begin(), tokens.end());
  return {rows, rows == behind};
}

}  // namespace

api::Result<std::unique_ptr<Drafter>> MakeModelDrafter(std::unique_ptr<models::Model> model, int32_t vocab,
                                                       size_t cache_bytes) {
  if (model->vocab_size() < vocab) {
    return api::Fail(api::ErrorCode::kBadModel, "the draft model has a smaller vocabulary than its target");
  }
  auto cache = cache::HybridCache::Create(model->cache_layout(), {.bytes = cache_bytes});
  if (!cache) return api::Fail(api::ErrorCode::kInternal, cache.error().message);
  const auto options = ModelDrafter::OptionsFor(*model, vocab, cache_bytes);
  return std::make_unique<ModelDrafter>(std::move(model), std::move(*cache), options);
}

}  // namespace quire::runner::draft
