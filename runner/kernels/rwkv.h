// What RWKV-7 needs beside linear maps: token shifts, the gates of a layer, the update of its state, and its
// output ("RWKV-7 Goose", Peng et al. 2025). State and arithmetic are float32. How a sequence is cut into
// steps, what else is in the batch and the number of threads do not change a bit.
#pragma once

#include <cstdint>
#include <span>

#include "runner/kernels/recurrent_layer.h"
#include "runner/kernels/thread_pool.h"

namespace quire::runner::kernels {

struct RwkvShape {
  int64_t heads = 0;
  int64_t head_dim = 0;

  int64_t width() const { return heads * head_dim; }
};

// delta[t] = x[t - 1] - x[t], per channel. x before a sequence's first new row is a part of its convolution
// tail, which has one column; afterwards it is the last new row. Captures get that part as it is at their
// place, and the record of a token has its x at the same offset.
struct TokenShiftArgs {
  RecurrentLayer at;         // conv_tail = 1
  int64_t first = 0;         // of the column's channels
  int64_t channels = 0;      // [first, first + channels)
  std::span<const float> x;  // [rows, channels]
  std::span<float> delta;    // [rows, channels]
};
void TokenShift(ThreadPool& pool, const TokenShiftArgs& args);

// y = x + weight * delta: between a row and the one before it. Rows of weight.size() numbers.
void Lerp(ThreadPool& pool, std::span<const float> x, std::span<const float> delta,
          std::span<const float> weight, std::span<float> y);

// x = tanh(x).
void Tanh(ThreadPool& pool, std::span<float> x);

// x = sigmoid(x + bias), rows of bias.size() numbers; an empty bias adds nothing.
void SigmoidBias(ThreadPool& pool, std::span<const float> bias, std::span<float> x);

// w = exp(-exp(-0.5) sigmoid(w + bias)): the decay of each channel.
void RwkvDecay(ThreadPool& pool, std::span<const float> bias, std::span<float> w);

// v += gate * (first - v).
void MixTowards(ThreadPool& pool, std::span<const float> first, std::span<const float> gate,
                std::span<float> v);

// removed = k * removal scaled to length 1 per head, that is divided by max(sqrt(sum of squares + inside),
// least); k *= 1 + (a - 1) * rate. Rows of heads * head_dim numbers.
struct RwkvKeyArgs {
  RwkvShape shape;
  std::span<const float> removal, rate;  // [width]
  float least = 0, inside = 0;
  std::span<const float> a;  // [rows, width]
  std::span<float> k;        // [rows, width]
  std::span<float> removed;  // [rows, width]
};
void RwkvKeys(ThreadPool& pool, const RwkvKeyArgs& args);

// Per head, with state S [key, value] and per token r, w, k, v, kk (removed), a:
//   s = S^T kk;  S = diag(w) S - (a kk) s^T + k v^T;  y = S^T r.
// One order of operations on every machine: per value channel, over the key channels j in ascending order,
//   s = fma(kk_j, S_j, s);   S_j = fma(-(a_j kk_j), s, fma(k_j, v, w_j S_j)),  y = fma(r_j, S_j, y).
// There is no sum over lanes. Captures get the state as it is at their place; the record of a token has w, k,
// v, kk and a behind its first `record_first` floats.
struct RwkvUpdateArgs {
  RecurrentLayer at;  // delta_heads = heads, delta_value_dim = delta_key_dim = head_dim
  RwkvShape shape;
  int64_t record_first = 0;
  std::span<const float> r, w, k, v, removed, a;  // [rows, width]
  std::span<float> y;                             // [rows, width]
};
void RwkvUpdate(ThreadPool& pool, const RwkvUpdateArgs& args);

// Per head: y = (n(y) * weight + bias + (sum_j r_j k_j bonus_j) v) * gate, with n the norm of mean 0 and
// variance 1. Without weights n is left out, without a gate it counts as 1.
struct RwkvOutputArgs {
  RwkvShape shape;
  float eps = 0;
  std::span<const float> weight, bias;  // [width], or empty
  std::span<const float> bonus;         // [width]
  std::span<const float> r, k, v;       // [rows, width]
  std::span<const float> gate;          // [rows, width], or empty
  std::span<float> y;                   // [rows, width]
};
void RwkvOutput(ThreadPool& pool, const RwkvOutputArgs& args);

}  // namespace quire::runner::kernels
