// State-space layers over a ragged batch, with float32 state carried between steps: the scalar-decay
// recurrence of Mamba-2 ("Transformers are SSMs", Dao, Gu 2024) and the selective scan of Mamba-1 (Gu, Dao
// 2023).
//
// One recurrence, token by token, serves prefill and decode. A row of y depends on the rows and the state of
// its own sequence only; how a sequence is cut into steps does not change a bit. Each number of the state and
// of y is computed in a lane of its own, in ascending order of the state's rows, every step a fused
// multiply-add. Captures get the state as it is at their place.
#pragma once

#include <cstdint>
#include <span>

#include "runner/kernels/recurrent_layer.h"
#include "runner/kernels/thread_pool.h"

namespace quire::runner::kernels {

struct SsdShape {
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t groups = 0;  // divides heads; head h reads B and C of group h / (heads / groups)
  int64_t state = 0;

  int64_t inner() const { return heads * head_dim; }
  int64_t channels() const { return inner() + 2 * groups * state; }
};

// How raw time steps become those of the recurrence.
struct SsdTimeSteps {
  std::span<const float> bias;  // [heads]
  std::span<const float> rate;  // [heads] -exp(A_log)
  float low = 0, high = 0;      // limits of a step
};

// dt [rows, heads] = clamp(softplus(dt + bias), low, high), in place; decay [rows, heads] = exp(dt * rate).
void SsdGates(ThreadPool& pool, const SsdTimeSteps& steps, std::span<float> dt, std::span<float> decay);

// Per head, with state S [state, head_dim] and per token x (the head's), B and C (its group's):
//   S = decay S + B (dt x)^T;  y = skip x + C S.
// The record of a token holds dt and decay, [heads] each, behind its first `channels()` floats.
struct SsdArgs {
  RecurrentLayer at;  // delta_heads = heads, delta_value_dim = state, delta_key_dim = head_dim
  SsdShape shape;
  std::span<const float> xbc;    // [rows, channels()]: x of all heads, B of all groups, C of all groups
  std::span<const float> dt;     // [rows, heads]
  std::span<const float> decay;  // [rows, heads]
  std::span<const float> skip;   // [heads]
  std::span<float> y;            // [rows, inner()]
};

void SsdScan(ThreadPool& pool, const SsdArgs& args);

// dt = softplus(dt + bias), rows of bias.size() numbers.
void SoftplusRows(ThreadPool& pool, std::span<const float> bias, std::span<float> dt);

// Per channel i, with state S [state, inner] and per token x_i, dt_i and the token's B and C:
//   S_ni = exp(dt_i rate_ni) S_ni + B_n (dt_i x_i);  y_i = skip_i x_i + sum_n C_n S_ni.
// The record of a token holds dt [inner] and B [state] behind its first `inner` floats.
struct SelectiveScanArgs {
  RecurrentLayer at;  // delta_heads = 1, delta_value_dim = state, delta_key_dim = inner
  int64_t inner = 0, state = 0;
  std::span<const float> x;     // [rows, inner]
  std::span<const float> dt;    // [rows, inner]
  std::span<const float> b, c;  // [rows, state]
  std::span<const float> rate;  // [state, inner] -exp(A_log), transposed
  std::span<const float> skip;  // [inner]
  std::span<float> y;           // [rows, inner]
};

void SelectiveScan(ThreadPool& pool, const SelectiveScanArgs& args);

// The gate of a state-space layer's output.
struct GatedNormShape {
  int64_t group = 0;  // numbers that are normed together; divides the width
  float eps = 0;
  bool norm_first = false;  // y = norm(x) * silu(gate) rather than norm(x * silu(gate))
};

// In place of x: RMS norms of groups of each row of weight.size() numbers, and the gate. Each weight has its
// own number.
void GatedRmsNorm(ThreadPool& pool, const GatedNormShape& shape, std::span<const float> weight,
                  std::span<const float> gate, std::span<float> x);

// Multiplies each row of factors.size() numbers by the factors.
void ScaleColumns(ThreadPool& pool, std::span<const float> factors, std::span<float> x);

}  // namespace quire::runner::kernels
