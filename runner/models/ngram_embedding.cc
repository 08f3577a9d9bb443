#include "runner/models/ngram_embedding.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "runner/kernels/elementwise.h"
#include "runner/kernels/parallel_rows.h"
#include "runner/kernels/portable_math.h"
#include "runner/kernels/short_conv.h"
#include "runner/kernels/state_space.h"

namespace quire::runner::models {
namespace {

constexpr int64_t kNoToken = -1;

uint64_t SplitMix64(uint64_t value) {
  value += 0x9E3779B97F4A7C15U;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9U;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBU;
  return value ^ (value >> 31);
}

bool IsPrime(int64_t value) {
  if (value < 4) return value > 1;
  if (value % 2 == 0) return false;
  for (int64_t divisor = 3; divisor * divisor <= value; divisor += 2) {
    if (value % divisor == 0) return false;
  }
  return true;
}

// Adds the columns in `inputs`, the last ones, to a tail [columns, width bytes].
void ShiftTail(std::byte* tail, size_t columns, size_t width, std::span<const std::byte> inputs,
               size_t tokens) {
  const size_t added = std::min(columns, tokens), kept = columns - added;
  std::memmove(tail, tail + added * width, kept * width);
  std::memcpy(tail + kept * width, inputs.data() + (tokens - added) * width, added * width);
}

float DotProduct(const float* a, const float* b, size_t size) {
  double sum = 0;
  for (size_t i = 0; i < size; ++i) sum += static_cast<double>(a[i]) * b[i];
  return static_cast<float>(sum);
}

}  // namespace

cache::RecurrentLayer NgramEmbedding::tokens_state() const {
  return {.conv_tail = shape.order - 1, .conv_dim = 1, .record_bytes = sizeof(float)};
}

cache::RecurrentLayer NgramEmbedding::conv_state() const {
  return {.conv_tail = static_cast<int32_t>(shape.tail()),
          .conv_dim = static_cast<int32_t>(shape.row()),
          .record_bytes = static_cast<int32_t>(shape.row() * static_cast<int64_t>(sizeof(float)))};
}

void NgramEmbedding::HashRow(std::span<const int64_t> tokens, std::span<int64_t> rows) const {
  const auto heads = static_cast<size_t>(shape.heads);
  uint64_t mix = 0;
  bool cut = false;
  for (size_t s = 0; s < tokens.size(); ++s) {
    cut = cut || (s > 0 && (tokens[s] == shape.eos || tokens[s] == kNoToken));
    const int64_t token = cut ? shape.eos : tokens[s];
    mix ^= static_cast<uint64_t>(token) * static_cast<uint64_t>(multipliers[s]);
    if (s == 0) continue;
    for (size_t j = (s - 1) * heads; j < s * heads; ++j) {
      const int64_t rest = static_cast<int64_t>(mix) % sizes[j];
      rows[j] = (rest < 0 ? rest + sizes[j] : rest) + offsets[j];
    }
  }
}

std::vector<int64_t> NgramEmbedding::Hash(ForwardContext& ctx) const {
  const kernels::RecurrentLayer at{
      .layout = &ctx.layout, .layer = tokens_layer, .step = &ctx.step, .row_begin = ctx.batch.row_begin};
  const auto order = static_cast<size_t>(shape.order), hashes = static_cast<size_t>(shape.hashes());
  std::vector<int64_t> rows(static_cast<size_t>(ctx.rows()) * hashes), ids, tokens(order);
  for (size_t sequence = 0; sequence < at.sequences(); ++sequence) {
    const auto first = static_cast<size_t>(at.row_begin[sequence]);
    const size_t count = at.rows(sequence);
    if (count == 0) continue;
    float* const tail = at.Tail(ctx.step.Slot(sequence));
    ids.assign(order - 1, kNoToken);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(tail[i]) - 1;
    ids.insert(ids.end(), ctx.batch.tokens.begin() + static_cast<ptrdiff_t>(first),
               ctx.batch.tokens.begin() + static_cast<ptrdiff_t>(first + count));
    for (size_t t = 0; t < count; ++t) {
      for (size_t s = 0; s < order; ++s) tokens[s] = ids[order - 1 + t - s];
      HashRow(tokens, std::span(rows).subspan((first + t) * hashes, hashes));
    }
    const auto store = [&](size_t after, float* to) {
      for (size_t i = 0; i + 1 < order; ++i) to[i] = static_cast<float>(ids[after + i] + 1);
    };
    for (const cache::StateCapture& capture : ctx.step.Captures(sequence)) {
      store(static_cast<size_t>(capture.after), at.Tail(capture.slot));
    }
    if (float* record = at.Record(sequence); record != nullptr) {
      for (size_t t = 0; t < count; ++t) {
        record[t * at.record_stride()] = static_cast<float>(ids[order - 1 + t] + 1);
      }
    }
    store(count, tail);
  }
  return rows;
}

void NgramEmbedding::LookUp(ForwardContext& ctx, std::span<const int64_t> rows, std::span<float> e) const {
  const auto width = static_cast<size_t>(shape.width / shape.hashes());
  // In parallel because the rows may have to be read from a disk.
  ctx.pool.ParallelFor(rows.size(), [&](size_t i) {
    const auto behind = std::ranges::upper_bound(first_rows, rows[i]);
    const auto table = static_cast<size_t>(behind - first_rows.begin()) - 1;
    const auto row = static_cast<int32_t>(rows[i] - first_rows[table]);
    kernels::EmbeddingRows(tables[table], std::span(&row, 1), e.subspan(i * width, width));
  });
}

void NgramEmbedding::Normalize(ForwardContext& ctx, std::span<const float> x, std::span<const float> weights,
                               std::span<float> y) const {
  plain.Run(ctx.pool, x, y);
  kernels::ScaleColumns(ctx.pool, weights, y);
}

void NgramEmbedding::AddTo(ForwardContext& ctx, std::span<float> h) const {
  const int64_t rows = ctx.rows();
  const auto n = static_cast<size_t>(shape.streams), hidden = static_cast<size_t>(shape.hidden);
  const auto width = static_cast<size_t>(shape.row());
  const std::span<float> e = ctx.work.shared.Get(rows * shape.width);
  const std::span<float> y = ctx.work.projected.Get(rows * shape.row());
  const std::span<float> v = ctx.work.mixed.Get(rows * shape.hidden);
  const std::span<float> normed = ctx.work.normed.Get(rows * shape.row());
  LookUp(ctx, Hash(ctx), e);
  RunTogether(ctx.pool, ctx.Input(e), {{&key, y}, {&value, v}});
  Normalize(ctx, y, key_norm, y);
  Normalize(ctx, h, query_norm, normed);
  const float root = std::sqrt(static_cast<float>(shape.hidden));
  kernels::ForEachRow(ctx.pool, static_cast<size_t>(rows), width, [&](size_t row) {
    for (size_t j = 0; j < n; ++j) {
      float* const at = y.data() + row * width + j * hidden;
      const float s = DotProduct(at, normed.data() + row * width + j * hidden, hidden) / root;
      const float size = std::sqrt(std::max(std::abs(s), 1e-6F));
      const float gate = kernels::Sigmoid(s > 0 ? size : s < 0 ? -size : 0);
      for (size_t c = 0; c < hidden; ++c) at[c] = gate * v[row * hidden + c];
    }
  });
  Normalize(ctx, y, conv_norm, normed);
  const std::span<float> convolved = ctx.work.convolved.Get(rows * shape.row());
  kernels::ShortConv(ctx.pool, {.at = {.layout = &ctx.layout,
                                       .layer = conv_layer,
                                       .step = &ctx.step,
                                       .row_begin = ctx.batch.row_begin},
                                .form = kernels::ConvForm::kSilu,
                                .channels = shape.row(),
                                .kernel = shape.kernel,
                                .dilation = shape.order,
                                .taps = taps,
                                .bias = {},
                                .input = normed,
                                .y = convolved});
  kernels::Add(ctx.pool, convolved, y);
  kernels::Add(ctx.pool, y, h);
}

void NgramEmbedding::Replay(const cache::Layout& layout, size_t recurrent_layer, std::byte* slot,
                            std::span<const std::byte> inputs, int32_t tokens) const {
  const cache::RecurrentLayer& layer = layout.recurrent[recurrent_layer];
  ShiftTail(slot + cache::ConvOffset(layout, recurrent_layer), static_cast<size_t>(layer.conv_tail),
            static_cast<size_t>(layer.record_bytes), inputs, static_cast<size_t>(tokens));
}

NgramHashes MakeNgramHashes(const NgramShape& shape, int64_t vocab, int64_t seed, int64_t first_size,
                            int64_t module) {
  NgramHashes made;
  const int64_t half = std::max<int64_t>(1, INT64_MAX / std::max<int64_t>(vocab, 1) / 2);
  for (int32_t k = 1; k <= shape.order; ++k) {
    const uint64_t value =
        static_cast<uint64_t>(seed + 10007 * module) + 0x9E3779B97F4A7C15U * static_cast<uint64_t>(k);
    made.multipliers.push_back(
        static_cast<int64_t>(2 * (SplitMix64(value) % static_cast<uint64_t>(half)) + 1));
  }
  int64_t prime = first_size - 1, offset = 0;
  for (int64_t j = 0; j < (module + 1) * shape.hashes(); ++j) {
    do {
      ++prime;
    } while (!IsPrime(prime));
    if (j < module * shape.hashes()) continue;
    made.sizes.push_back(prime);
    made.offsets.push_back(offset);
    offset += prime;
  }
  return made;
}

namespace {

void BindTables(const TensorScope& layer, const TensorScope& global, int64_t parts, NgramEmbedding* made) {
  const NgramShape& shape = made->shape;
  const int64_t columns = shape.width / shape.hashes();
  int64_t rows = 0;
  const auto add = [&](const TensorScope& scope, const std::string& name) {
    const TensorName full{name, name};
    const std::vector<int64_t> stored = scope.ShapeOf(full);
    const int64_t count = stored.size() == 2 ? stored[0] : 1;
    made->tables.push_back(scope.Rows(full, count, columns));
    made->first_rows.push_back(rows);
    rows += count;
  };
  if (layer.gguf()) {
    add(global, "per_layer_token_embd.weight");
  } else {
    for (int64_t i = 0; i < parts && !layer.failed(); ++i) {
      add(layer, fmt::format("ple.ple_embedding.ngram_embedding.shard_{}.weight", i));
    }
  }
  for (size_t j = 0; j < made->sizes.size() && !layer.failed(); ++j) {
    const int64_t size = made->sizes[j], offset = made->offsets[j];
    if (size < 1 || offset < 0 || offset > rows || size > rows - offset) {
      layer.Fail(
          {"ple.ple_embedding.ngram_embedding", "ple_key.weight"},
          fmt::format("has no rows [{}, {}) for hash {} in a table of {}", offset, offset + size, j, rows));
    }
  }
}

}  // namespace

NgramEmbedding BindNgramEmbedding(const TensorScope& layer, const TensorScope& global,
                                  const NgramShape& shape, const NgramHashes& hashes, int64_t parts) {
  NgramEmbedding made{
      .shape = shape, .multipliers = hashes.multipliers, .sizes = hashes.sizes, .offsets = hashes.offsets};
  BindTables(layer, global, parts, &made);
  made.key = layer.BindLinear({"ple.key_proj", "ple_key"}, shape.row(), shape.width);
  made.value = layer.BindLinear({"ple.value_proj", "ple_value"}, shape.hidden, shape.width);
  made.plain = {.weight = std::vector<float>(static_cast<size_t>(shape.hidden), 1.0F), .eps = shape.eps};
  const auto norm = [&](TensorName name) {
    std::vector<float> weights = layer.Norm(name, shape.row());
    if (!layer.gguf()) {
      for (float& weight : weights) weight += 1;
    }
    return weights;
  };
  made.key_norm = norm({"ple.norm_key", "ple_norm_key"});
  made.query_norm = norm({"ple.norm_query", "ple_norm_query"});
  made.conv_norm = norm({"ple.norm_conv", "ple_norm_conv"});
  made.taps = layer.Taps({"ple.conv1d", "ple_conv1d"}, shape.row(), shape.kernel);
  RowWidths& widths = layer.widths();
  RowWidths::Grow(widths.shared, shape.width);
  RowWidths::Grow(widths.projected, shape.row());
  RowWidths::Grow(widths.convolved, shape.row());
  return made;
}

}  // namespace quire::runner::models
