// An encoder's forward pass, slice by slice.

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>

#include "runner/kernels/elementwise.h"
#include "runner/kernels/encoder_ops.h"
#include "runner/models/encoder.h"
#include "runner/models/linear_then.h"

namespace quire::runner::models {
namespace {

constexpr int64_t kForwardRows = 512;  // of a slice where nobody waits for its end

void ReportTo(ActivationHook* hook, const std::string& name, std::span<const float> values, int64_t rows) {
  if (hook != nullptr) hook->Activation(name, values, rows);
}

// Rows [begin, end) of x [.., width].
template <class Float>
std::span<Float> RowsIn(std::span<Float> x, int64_t begin, int64_t end, int64_t width) {
  return x.subspan(static_cast<size_t>(begin * width), static_cast<size_t>((end - begin) * width));
}

int32_t LongestOf(std::span<const int32_t> begin) {
  int32_t longest = 0;
  for (size_t i = 0; i + 1 < begin.size(); ++i) longest = std::max(longest, begin[i + 1] - begin[i]);
  return longest;
}

}  // namespace

EncoderPass Encoder::Start(EncoderBatch batch, EncoderPass spare) const {
  EncoderPass pass = std::move(spare);
  pass.batch_ = std::move(batch);
  pass.stage_ = EncoderPass::Stage::kEmbed;
  pass.layer_ = 0;
  pass.row_ = 0;
  pass.width_ = form_.hidden;
  pass.longest_ = LongestOf(pass.batch_.row_begin);
  pass.longest_window_ = LongestOf(pass.batch_.window_begin);
  pass.positions_ = std::move(pass.batch_.positions);
  if (pass.positions_.empty()) {
    const std::vector<int32_t>& begin = pass.batch_.row_begin;
    for (size_t text = 0; text + 1 < begin.size(); ++text) {
      for (int32_t i = begin[text]; i < begin[text + 1]; ++i) pass.positions_.push_back(i - begin[text]);
    }
  }
  pass.angles_.resize(form_.ropes.size());
  return pass;
}

int32_t Encoder::KeysOfNext(const EncoderPass& pass) const {
  if (pass.stage_ != EncoderPass::Stage::kRows) return 0;
  const int32_t reach = form_.reach.empty() ? -1 : form_.reach[static_cast<size_t>(pass.layer_)];
  const bool windowed = !form_.windowed.empty() && form_.windowed[static_cast<size_t>(pass.layer_)];
  const int32_t longest = windowed ? pass.longest_window_ : pass.longest_;
  return reach < 0 ? longest : std::min(longest, 2 * reach + 1);
}

// Rows that see each other in the pass's layer.
std::span<const int32_t> Encoder::GroupsOf(const EncoderPass& pass) const {
  const bool windowed = !form_.windowed.empty() && form_.windowed[static_cast<size_t>(pass.layer_)];
  return windowed ? pass.batch_.window_begin : pass.batch_.row_begin;
}

int64_t Encoder::Advance(EncoderPass& pass, ThreadPool& pool, int64_t rows) {
  assert(!pass.done());
  using Stage = EncoderPass::Stage;
  const auto enter_layer = [&] { return pass.layer_ < form_.layers ? Stage::kKeys : Stage::kNorm; };
  Block block{.begin = pass.row_, .end = std::min(pass.row_ + std::max<int64_t>(rows, 1), pass.rows())};
  switch (pass.stage_) {
    case Stage::kEmbed:
      Embed(pass, pool);
      pass.stage_ = enter_layer();
      return 0;
    case Stage::kKeys:
      ComputeKeys(pass, pool, block);
      break;
    case Stage::kRows:
      block.end = kernels::QueryBlocksEnd(GroupsOf(pass), block.begin, rows);
      ComputeRows(pass, pool, block);
      break;
    case Stage::kNorm:
      if (final_norm_) final_norm_.Run(pool, pass.hidden(), pass.hidden());
      pass.stage_ = Stage::kDone;
      return 0;
    case Stage::kDone:
      return 0;
  }
  pass.row_ = block.end;
  if (pass.row_ < pass.rows()) return block.rows();
  pass.row_ = 0;
  if (pass.stage_ == Stage::kKeys) {
    pass.stage_ = Stage::kRows;
  } else {
    ++pass.layer_;
    pass.stage_ = enter_layer();
  }
  return block.rows();
}

void Encoder::Embed(EncoderPass& pass, ThreadPool& pool) const {
  const EncoderBatch& batch = pass.batch_;
  const std::span<float> h = pass.hidden();
  if (form_.vocab > 0) kernels::EmbeddingRows(tokens_, batch.tokens, h);
  if (form_.embedding_scale != 1) kernels::Scale(pool, form_.embedding_scale, h);
  const auto width = static_cast<size_t>(form_.hidden);
  const auto add = [&](size_t row, const std::vector<float>& table, size_t at) {
    for (size_t i = 0; i < width; ++i) h[row * width + i] += table[at * width + i];
  };
  for (size_t row = 0; row < batch.tokens.size(); ++row) {
    if (form_.types > 0) {
      const int32_t type = row < batch.types.size() ? batch.types[row] : 0;
      add(row, types_, static_cast<size_t>(type < form_.types ? type : 0));
    }
    if (form_.position_rows > 0) {
      add(row, positions_, static_cast<size_t>(pass.positions_[row] + form_.position_offset));
    }
  }
  if (embedding_norm_) embedding_norm_.Run(pool, h, h);
  ComputeAngles(pass, pool);
}

void Encoder::ComputeAngles(EncoderPass& pass, ThreadPool& pool) const {
  const auto rows = static_cast<size_t>(pass.rows()), axes = static_cast<size_t>(form_.rope_axes);
  for (size_t i = 0; i < form_.ropes.size(); ++i) {
    const RopeSpec& rope = form_.ropes[i];
    const size_t width = rope.frequencies.size();
    const std::span<float> cos = pass.angles_[i].cos.Get(static_cast<int64_t>(rows * width)),
                           sin = pass.angles_[i].sin.Get(static_cast<int64_t>(rows * width));
    if (axes == 1) {
      kernels::RopeTable(pool, pass.positions_, rope.frequencies, cos, sin, rope.magnitude);
      continue;
    }
    const size_t part = width / axes;
    std::vector<int64_t> places(rows);
    std::vector<float> part_cos(rows * part), part_sin(rows * part);
    for (size_t axis = 0; axis < axes; ++axis) {
      for (size_t row = 0; row < rows; ++row) places[row] = pass.positions_[row * axes + axis];
      kernels::RopeTable(pool, places, std::span(rope.frequencies).subspan(axis * part, part), part_cos,
                         part_sin, rope.magnitude);
      for (size_t row = 0; row < rows; ++row) {
        std::copy_n(part_cos.data() + row * part, part, cos.data() + row * width + axis * part);
        std::copy_n(part_sin.data() + row * part, part, sin.data() + row * width + axis * part);
      }
    }
  }
}

// Rows of q or k of the pass's layer.
void Encoder::Rotate(EncoderPass& pass, ThreadPool& pool, const Block& block, std::span<float> x) {
  const auto layer = static_cast<size_t>(pass.layer_);
  if (form_.rope_of.empty() || form_.rope_of[layer] < 0) return;
  const auto index = static_cast<size_t>(form_.rope_of[layer]);
  const RopeSpec& rope = form_.ropes[index];
  const auto frequencies = static_cast<int64_t>(rope.frequencies.size());
  const auto angles = [&](Scratch& table) {
    return RowsIn(table.Get(pass.rows() * frequencies), block.begin, block.end, frequencies);
  };
  const std::span<const float> cos = angles(pass.angles_[index].cos), sin = angles(pass.angles_[index].sin);
  if (!form_.rope_apart) {
    return kernels::Rope(pool, cos, sin, frequencies, form_.head_dim, block.rows(), x, rope.pairs);
  }
  // The parts of heads are heads of their own here, each of which has angles of its own.
  const auto heads = static_cast<size_t>(std::ssize(x) / block.rows() / form_.head_dim),
             width = static_cast<size_t>(frequencies), rows = static_cast<size_t>(block.rows());
  const std::span<float> all_cos = work_.cos.Get(static_cast<int64_t>(rows * heads * width)),
                         all_sin = work_.sin.Get(static_cast<int64_t>(rows * heads * width));
  for (size_t i = 0; i < rows * heads; ++i) {
    std::copy_n(cos.data() + i / heads * width, width, all_cos.data() + i * width);
    std::copy_n(sin.data() + i / heads * width, width, all_sin.data() + i * width);
  }
  kernels::Rope(pool, all_cos, all_sin, frequencies / form_.rope_axes, form_.head_dim / form_.rope_axes,
                static_cast<int64_t>(rows * heads) * form_.rope_axes, x, rope.pairs);
}

// What a part of a layer sees of the hidden states.
std::span<const float> Encoder::NormBefore(ThreadPool& pool, const Norm& norm, std::span<const float> h) {
  if (form_.norms == EncoderNorms::kAfter || !norm) return h;
  const std::span<float> normed = work_.normed.Get(std::ssize(h));
  norm.Run(pool, h, normed);
  return normed;
}

void Encoder::RunLinear(ThreadPool& pool, const Linear& linear, const Clip* clip, std::span<const float> x,
                        int64_t rows, std::span<float> y) {
  if (clip == nullptr) return linear.Run(pool, {x, rows, work_.quantized}, y);
  const std::span<float> in = work_.clipped.Get(std::ssize(x));
  std::ranges::transform(x, in.begin(), [&](float v) { return std::clamp(v, clip->in_min, clip->in_max); });
  linear.Run(pool, {in, rows, work_.quantized}, y);
  for (float& v : y) v = std::clamp(v, clip->out_min, clip->out_max);
}

void Encoder::ComputeKeys(EncoderPass& pass, ThreadPool& pool, const Block& block) {
  const Layer& layer = layers_[static_cast<size_t>(pass.layer_)];
  const int64_t queries = int64_t{form_.heads} * form_.head_dim,
                keys = int64_t{form_.kv_heads} * form_.head_dim;
  const auto rows_of = [&](Scratch& all, int64_t width) {
    return RowsIn(all.Get(pass.rows() * width), block.begin, block.end, width);
  };
  const std::span<float> q = rows_of(pass.q_, queries), k = rows_of(pass.k_, keys),
                         v = rows_of(pass.v_, keys);
  {
    const std::span<const float> h = RowsIn(pass.hidden(), block.begin, block.end, form_.hidden);
    const std::span<const float> x = NormBefore(pool, layer.attention_norm, h);
    if (layer.clips) {
      RunLinear(pool, layer.q, &layer.clips->q, x, block.rows(), q);
      RunLinear(pool, layer.k, &layer.clips->k, x, block.rows(), k);
      RunLinear(pool, layer.v, &layer.clips->v, x, block.rows(), v);
    } else {
      const kernels::MatMulInput in(x, block.rows(), work_.quantized);
      RunTogether(pool, in, {{&layer.q, q}, {&layer.k, k}, {&layer.v, v}});
    }
  }
  if (layer.q_norm) layer.q_norm.Run(pool, q, q);
  if (layer.k_norm) layer.k_norm.Run(pool, k, k);
  if (layer.v_norm) layer.v_norm.Run(pool, v, v);
  if (layer.wide_q_norm) layer.wide_q_norm.Run(pool, q, q);
  if (layer.wide_k_norm) layer.wide_k_norm.Run(pool, k, k);
  Rotate(pass, pool, block, q);
  Rotate(pass, pool, block, k);
}

void Encoder::Attend(EncoderPass& pass, ThreadPool& pool, const Block& block, std::span<float> y) {
  const auto index = static_cast<size_t>(pass.layer_);
  const int64_t queries = int64_t{form_.heads} * form_.head_dim,
                keys = pass.rows() * form_.kv_heads * form_.head_dim;
  const std::span<float> attended = work_.attended.Get(block.rows() * queries);
  const float scale =
      form_.scale != 0 ? form_.scale : static_cast<float>(1 / std::sqrt(static_cast<double>(form_.head_dim)));
  kernels::AttendBothWays(pool,
                          {.row_begin = GroupsOf(pass),
                           .heads = form_.heads,
                           .kv_heads = form_.kv_heads,
                           .head_dim = form_.head_dim,
                           .scale = scale,
                           .reach = form_.reach.empty() ? -1 : form_.reach[index],
                           .slopes = slopes_,
                           .distance_bias = distance_bias_,
                           .first_query = block.begin},
                          RowsIn(pass.q_.Get(pass.rows() * queries), block.begin, block.end, queries),
                          pass.k_.Get(keys), pass.v_.Get(keys), attended);
  const Layer& layer = layers_[index];
  RunLinear(pool, layer.out, layer.clips ? &layer.clips->out : nullptr, attended, block.rows(), y);
}

void Encoder::FeedForward(ThreadPool& pool, const Layer& layer, int64_t rows, std::span<const float> x,
                          std::span<float> y) {
  if (layer.experts) {
    return layer.experts.Run(pool, form_.activation, rows, x, work_.experts, work_.quantized, y);
  }
  const std::span<float> up = work_.up.Get(rows * form_.feed_forward);
  std::span<float> wide = up;
  if (layer.clips) {
    RunLinear(pool, layer.up, &layer.clips->up, x, rows, up);
    if (form_.gated) {
      wide = work_.gate.Get(rows * form_.feed_forward);
      RunLinear(pool, layer.gate, &layer.clips->gate, x, rows, wide);
      GateWith(form_.activation, up, wide);
    } else {
      Activate(pool, form_.activation, up);
    }
  } else {
    const kernels::MatMulInput in(x, rows, work_.quantized);
    const auto width = static_cast<size_t>(form_.feed_forward);
    if (form_.gated) {
      wide = work_.gate.Get(rows * form_.feed_forward);
      layer.up.Run(pool, in, up);
      RunThen(
          pool, layer.gate, in,
          [&](size_t row, size_t begin, std::span<float> gate) {
            GateWith(form_.activation, up.subspan(row * width + begin, gate.size()), gate);
          },
          wide);
    } else {
      RunThen(
          pool, layer.up, in,
          [&](size_t, size_t, std::span<float> values) { Activate(form_.activation, values); }, up);
    }
  }
  RunLinear(pool, layer.down, layer.clips ? &layer.clips->down : nullptr, wide, rows, y);
}

void Encoder::ComputeRows(EncoderPass& pass, ThreadPool& pool, const Block& block) {
  const Layer& layer = layers_[static_cast<size_t>(pass.layer_)];
  const std::span<float> h = RowsIn(pass.hidden(), block.begin, block.end, form_.hidden);
  const std::span<float> mixed = work_.mixed.Get(std::ssize(h));
  const bool after = form_.norms == EncoderNorms::kAfter;
  const auto add = [&](const Norm& norm, const Norm& post) {
    if (post) post.Run(pool, mixed, mixed);
    kernels::Add(pool, mixed, h);
    if (after) norm.Run(pool, h, h);
  };
  const std::span<float> residual =
      layer.second_attention_norm ? work_.residual.Get(std::ssize(h)) : std::span<float>();
  std::copy_n(h.begin(), residual.size(), residual.begin());
  Attend(pass, pool, block, mixed);
  add(layer.attention_norm, layer.post_attention_norm);
  if (layer.second_attention_norm) {
    kernels::Add(pool, residual, h);
    layer.second_attention_norm.Run(pool, h, h);
  }
  FeedForward(pool, layer, block.rows(), NormBefore(pool, layer.mlp_norm, h), mixed);
  add(layer.mlp_norm, layer.post_mlp_norm);
}

void Encoder::Forward(EncoderBatch batch, ThreadPool& pool, std::span<float> hidden, ActivationHook* hook) {
  EncoderPass pass = Start(std::move(batch));
  Advance(pass, pool, kForwardRows);
  ReportTo(hook, "hidden.embed", pass.hidden(), pass.rows());
  while (!pass.done()) {
    const int32_t layer = pass.layers_done();
    Advance(pass, pool, kForwardRows);
    if (pass.layers_done() > layer)
      ReportTo(hook, fmt::format("hidden.layer{}", layer), pass.hidden(), pass.rows());
  }
  std::ranges::copy(pass.hidden(), hidden.begin());
}

}  // namespace quire::runner::models
