// The gated delta rule over a ragged batch, with float32 state carried between steps ("Gated Delta Networks",
// Yang, Kautz, Hatamizadeh 2024, in the form that Qwen3-Next uses), and with a decay of each key channel
// ("Kimi Linear", Kimi Team 2025).
#pragma once

#include <cstdint>
#include <span>

#include "runner/kernels/recurrent_layer.h"
#include "runner/kernels/thread_pool.h"

namespace quire::runner::kernels {

struct GatedDeltaShape {
  int64_t key_heads = 0;
  int64_t value_heads = 0;  // a multiple of key_heads
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  bool tiled = false;       // value head h reads key head h % key_heads; else h / (value_heads / key_heads)
  bool by_channel = false;  // a decay for each key channel of a value head rather than one for all

  int64_t keys() const { return key_heads * key_dim; }
  int64_t values() const { return value_heads * value_dim; }
  int64_t channels() const { return 2 * keys() + values(); }
  int64_t decays() const { return by_channel ? value_heads * key_dim : value_heads; }
};

// decay [rows, heads] = exp(rate * softplus(a + bias)), beta = sigmoid(b), in place of a and b: one number
// per token and value head. `rate` is -exp(A_log), `bias` the time step's; both [heads].
void DeltaGates(std::span<const float> rate, std::span<const float> bias, std::span<float> a,
                std::span<float> b);

// a [rows, heads, width] = exp(rate * softplus(a + bias)), in place. rate [heads] as above, bias [heads,
// width]. Each number by itself, with the C library.
void ChannelDecay(ThreadPool& pool, std::span<const float> rate, std::span<const float> bias,
                  std::span<float> a);

// The same with exp(bound * sigmoid(rate * (a + bias))): no decay is below exp(bound). rate [heads] is
// exp(A_log); bound < 0.
void BoundedChannelDecay(ThreadPool& pool, std::span<const float> rate, std::span<const float> bias,
                         float bound, std::span<float> a);

// beta = 1 / (1 + exp(-b)), in place.
void SigmoidOf(std::span<float> b);

// Per value head, with state S [value_dim, key_dim] and per token q, k (its key head's, divided by their
// length, q also by sqrt(key_dim)), v:
//   S = decay S;  S = S + beta (v - S k) k^T;  y = S q.
// by_channel: column c of S is multiplied with the head's decay c.
// One pass over the state per token; a row of S never leaves the first-level cache while a sequence's new
// tokens pass. A row of y depends on the rows and the state of its own sequence only; how a sequence is cut
// into steps does not change a bit. Captures get the state as it is at their place; the record of a token
// holds decay [decays()] and beta [value_heads] behind its first `channels()` floats.
struct GatedDeltaArgs {
  RecurrentLayer at;  // delta_heads, delta_value_dim, delta_key_dim as in shape
  GatedDeltaShape shape;
  std::span<float> qkv;  // [rows, channels()]: q, k of all key heads, v; q and k are normalized in place
  std::span<const float> decay;  // [rows, decays()]
  std::span<const float> beta;   // [rows, value_heads]
  std::span<float> y;            // [rows, value_heads, value_dim]
};

void GatedDelta(ThreadPool& pool, const GatedDeltaArgs& args);

}  // namespace quire::runner::kernels
