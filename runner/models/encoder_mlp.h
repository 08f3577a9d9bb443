// What encoders' feed-forward layers share: their activations, and layers of experts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runner/kernels/experts.h"
#include "runner/models/forward_context.h"
#include "runner/models/linear.h"
#include "runner/models/tensor_binder.h"

namespace quire::runner::models {

// kGeluQuick: x sigmoid(1.702 x).
enum class EncoderActivation : uint8_t { kGeluErf, kGeluTanh, kGeluQuick, kRelu, kSilu };

void Activate(ThreadPool& pool, EncoderActivation activation, std::span<float> x);
// The same in the calling thread.
void Activate(EncoderActivation activation, std::span<float> x);
// gate = activation(gate) * up, in the calling thread.
void GateWith(EncoderActivation activation, std::span<const float> up, std::span<float> gate);

// Which layers have experts: those whose number leaves 1 when divided by `period`.
struct EncoderExpertsForm {
  int32_t experts = 0;  // 0: no layer has
  int32_t chosen = 0;   // per token
  int32_t period = 0;

  bool Has(size_t layer) const { return experts > 0 && layer % static_cast<size_t>(period) == 1; }
};

// y = bias + sum over the chosen e of softmax(router(x))_e * down_e(activation(up_e(x))), in ascending order
// of e; the weights of the chosen are not divided by their sum (nomic-embed-text-v2-moe, Nussbaum et al.
// 2025).
struct EncoderExperts {
  struct Work {
    kernels::Routing routing;
    std::vector<kernels::MatMulPart> parts;
    Scratch scores, in, out, wide;
  };

  Linear router;  // [experts, hidden]
  int32_t chosen = 0;
  std::vector<kernels::Matrix> up, down;           // [experts]
  std::vector<float> bias;                         // [hidden], or empty
  std::vector<std::unique_ptr<std::byte[]>> made;  // memory of matrices that no file has

  explicit operator bool() const { return static_cast<bool>(router); }
  void Run(ThreadPool& pool, EncoderActivation activation, int64_t rows, std::span<const float> x, Work& work,
           kernels::QuantizedActivations& quantized, std::span<float> y) const;
  // Floats of Work for each row.
  static int64_t FloatsOf(const EncoderExpertsForm& form, int64_t hidden, int64_t width) {
    return form.experts + int64_t{form.chosen} * (2 * hidden + width);
  }
};

// REQUIRES: form.experts > 0.
EncoderExperts BindEncoderExperts(const TensorScope& layer, const EncoderExpertsForm& form, int64_t hidden,
                                  int64_t width);

}  // namespace quire::runner::models
