// A residual of several streams (hyper-connections): h [rows, streams, hidden]. What a part of a block
// reads is mixed from the streams of a row, and what it makes goes into each of them, with weights of the
// row's own.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runner/models/config_reader.h"
#include "runner/models/forward_context.h"
#include "runner/models/linear.h"
#include "runner/models/tensor_binder.h"

namespace quire::runner::models {

// What all connections of a model have in common.
struct StreamShape {
  // kMixing (mHC, Xie et al. 2026; DeepSeek V4), kIndependent (Hunyuan V4): see below. kLowRank: Qwen4-Exp's.
  enum class Form : uint8_t { kMixing, kIndependent, kLowRank } form = Form::kMixing;
  int32_t streams = 1;
  int32_t hidden = 0;
  float norm_eps = 0;
  float eps = 0;           // added to weights
  float magnitude = 2;     // of what goes back
  int32_t iterations = 0;  // of kMixing: rounds that make rows and columns sum to 1
  int32_t rank = 0;        // of kLowRank

  int64_t width() const { return int64_t{streams} * hidden; }
  // Weights of a row: those of reading, of writing, of mixing.
  int64_t weights() const {
    return form == Form::kMixing        ? (2 + int64_t{streams}) * streams
           : form == Form::kIndependent ? 2 * int64_t{streams}
                                        : streams;
  }
};

constexpr int32_t kMaxStreams = 16;

// hyper_connection.count and its like in both formats. The form, hidden and norm_eps are the caller's.
void ReadStreams(ConfigReader& read, StreamShape* shape);

// One part of a block, or the end of all blocks, where nothing is written. With n streams h_j,
// f = h / sqrt(mean(h^2) + norm_eps) over all streams of a row:
//   z = fn f
//   pre = sigmoid(scale_0 z + base) + eps            [n]
//   post = magnitude sigmoid(scale_1 z + base)       [n]; of kIndependent + eps
//   u = sum_j pre_j h_j
//   h_k = post_k o + sum_j C_jk h_j                  of kIndependent h_k + post_k o
// C is softmax(scale_2 z + base) + eps over its second index, whose columns and rows are divided by their
// sums + eps in turn, `iterations` times. kLowRank: x = norm(h), each stream by itself,
//   u = mean_j(sigmoid(up(silu(down(x) / n)))_j x_j)
//   h_j = h_j + 2 sigmoid(inject(x) / n)_j o
struct HyperConnection {
  StreamShape shape = {};
  Linear fn = {};
  std::vector<float> scale = {}, base = {};  // [1 to 3], [weights]
  RmsNorm plain = {};                        // without weights: of a whole row, of kLowRank of a stream
  std::vector<float> norm = {};              // [streams, hidden] of kLowRank
  Linear down = {}, up = {}, inject = {};

  // u [rows, hidden] = what the part reads. Where something is written, the weights of writing stay in
  // ctx.work.stream_weights. Takes ctx.work.normed. REQUIRES: h has whole rows, of the batch or not.
  void Read(ForwardContext& ctx, std::span<const float> h, std::span<float> u) const;
  // Adds o [rows, hidden]. REQUIRES: Read() has run with this h, and no other connection since.
  void Write(ForwardContext& ctx, std::span<const float> o, std::span<float> h) const;

 private:
  void ReadLowRank(ForwardContext& ctx, std::span<const float> h, std::span<float> u) const;
  // The weights of one row, from z to those above, in place.
  void Weigh(std::span<float> z) const;
};

struct ConnectionNames {
  TensorName fn = {}, scale = {}, base = {};              // complete names
  TensorName norm = {}, down = {}, up = {}, inject = {};  // of kLowRank
};
// A block's two connections and the end of all blocks.
struct StreamForm {
  StreamShape shape = {};
  ConnectionNames attention = {}, feed_forward = {}, end = {};
};

// `writes`: the part's results go back; else it is the end of all blocks.
HyperConnection BindConnection(const TensorScope& scope, const StreamShape& shape,
                               const ConnectionNames& names, bool writes);

// h += part(norm(u)) through a connection; without a norm, part(u). `part(x, y)` fills y [rows, hidden].
template <class NormOfPart, class Part>
void RunThrough(ForwardContext& ctx, const HyperConnection& connection, const NormOfPart& norm,
                std::span<float> h, const Part& part) {
  const int64_t size = ctx.rows() * connection.shape.hidden;
  const std::span<float> u = ctx.work.mixed.Get(size);
  connection.Read(ctx, h, u);
  if (norm) norm.Run(ctx.pool, u, u);
  const std::span<float> made = ctx.work.normed.Get(size);
  part(u, made);
  connection.Write(ctx, made, h);
}

}  // namespace quire::runner::models
