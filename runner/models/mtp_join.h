// What layers for multi-token prediction have in common: how a token's embedding and the hidden state before
// it become the layer's input, and the model of one layer as an MtpLayer.
#pragma once

#include <memory>
#include <span>
#include <utility>

#include "runner/models/draft_model.h"
#include "runner/models/forward_context.h"
#include "runner/models/linear.h"
#include "runner/models/tensor_binder.h"

namespace quire::runner::models {

//   h = join([token_norm(h) ; before_norm(before)])
struct MtpJoin {
  RmsNorm token_norm, before_norm;
  Linear join;                    // [hidden, 2 hidden]
  std::span<const float> before;  // [rows, hidden] of the coming pass

  // h [rows, hidden]: the embedded tokens, then the layer's input.
  void Run(ForwardContext& ctx, std::span<float> h) const;
};

// `Layer` is a Decoder of one layer with a public member `MtpJoin input`. Owns it.
template <class Layer>
class DecoderMtpLayer final : public MtpLayer {
 public:
  explicit DecoderMtpLayer(std::unique_ptr<Layer> layer) : layer_(std::move(layer)) {}

  const cache::Layout& cache_layout() const override { return layer_->cache_layout(); }
  int64_t weight_bytes() const override { return layer_->weight_bytes(); }
  void Forward(const Batch& batch, std::span<const float> before, const cache::StepView& step,
               ThreadPool& pool, const Outputs& outputs) override {
    layer_->input.before = before;
    static_cast<Model&>(*layer_).Forward(batch, step, pool, outputs);
  }

 private:
  std::unique_ptr<Layer> layer_;
};

// The last step of a loader of such layers. `bind` has bound the layer's tensors.
template <class Layer>
api::Result<std::unique_ptr<MtpLayer>> FinishMtpLayer(const TensorBinder& bind, std::unique_ptr<Layer> layer,
                                                      api::KvType kv_type) {
  if (bind.error()) return std::unexpected(*bind.error());
  if (auto stored = layer->SetKvCacheType(kv_type); !stored) return std::unexpected(stored.error());
  return std::make_unique<DecoderMtpLayer<Layer>>(std::move(layer));
}

}  // namespace quire::runner::models
