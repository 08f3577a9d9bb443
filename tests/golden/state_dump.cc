#include "tests/golden/state_dump.h"

#include <fmt/format.h>

#include <algorithm>

#include "cache/layout.h"
#include "runner/kernels/attention.h"

namespace quire::runner::golden {
namespace {

void DumpKeys(const cache::Layout& layout, const models::CacheBinding& binding, const cache::StepView& view,
              const std::string& name, StateDump* dump) {
  const cache::AttentionGroup& group = layout.groups[binding.index];
  if (group.latent > 0) return;
  const auto dim = static_cast<size_t>(group.head_dim);
  // Without what only fills a row.
  const auto keep = [&](std::vector<float>& rows, size_t first, int32_t used) {
    const auto size = static_cast<size_t>(used);
    if (used == 0) return;
    for (size_t from = first, to = first; from < rows.size(); from += dim, to += size) {
      std::copy_n(rows.data() + from, size, rows.data() + to);
    }
    rows.resize(first + (rows.size() - first) / dim * size);
  };
  for (int32_t head = 0; head < group.kv_heads; ++head) {
    const size_t key = cache::KeyOffset(layout, binding.index, binding.layer, head);
    const size_t value = cache::ValueOffset(layout, binding.index, binding.layer, head);
    for (const cache::PageView& page : view.Pages(0, binding.index)) {
      const auto row = static_cast<int32_t>(page.first % layout.page_tokens);
      const size_t count = static_cast<size_t>(page.tokens) * dim;
      std::vector<float>& keys = (*dump)[name + ".k"];
      const size_t first_key = keys.size(), first_value = (*dump)[name + ".v"].size();
      keys.resize(keys.size() + count);
      kernels::ReadKeys(layout, binding.index, page.base + key, row, page.tokens,
                        std::span(keys).last(count));
      std::vector<float>& values = (*dump)[name + ".v"];
      values.resize(values.size() + count);
      for (int32_t t = 0; t < page.tokens; ++t) {
        kernels::ReadValue(layout, binding.index, page.base + value, row + t,
                           std::span(values).last(count).subspan(static_cast<size_t>(t) * dim, dim));
      }
      keep(keys, first_key, binding.key_dim);
      keep(values, first_value, binding.value_dim);
    }
  }
}

// [rows, columns] at `from`, transposed.
std::vector<float> Transposed(const float* from, size_t rows, size_t columns) {
  std::vector<float> transposed(rows * columns);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c) transposed[c * rows + r] = from[r * columns + c];
  }
  return transposed;
}

// Where value head `head`, counted as the reference does, lies.
size_t StoredHead(const models::CacheBinding& binding, size_t heads, size_t head) {
  if (binding.tiled_over == 0) return head;
  const auto key_heads = static_cast<size_t>(binding.tiled_over);
  const size_t shared = heads / key_heads;
  return head % shared * key_heads + head / shared;
}

// A state-space layer's [heads, state, head_dim] as the reference has it, [heads, head_dim, state].
void DumpStateSpace(const cache::Layout& layout, const models::CacheBinding& binding, std::byte* slot,
                    const std::string& name, StateDump* dump) {
  const cache::RecurrentLayer& layer = layout.recurrent[binding.index];
  const auto rows = static_cast<size_t>(layer.delta_value_dim),
             columns = static_cast<size_t>(layer.delta_key_dim);
  const auto* tail = reinterpret_cast<const float*>(slot + cache::ConvOffset(layout, binding.index));
  (*dump)[name + ".conv"] =
      Transposed(tail, static_cast<size_t>(layer.conv_tail), static_cast<size_t>(layer.conv_dim));
  const auto* state = reinterpret_cast<const float*>(slot + cache::DeltaOffset(layout, binding.index));
  std::vector<float>& all = (*dump)[name + ".ssm"];
  for (size_t head = 0; head < static_cast<size_t>(layer.delta_heads); ++head) {
    const std::vector<float> transposed = Transposed(state + head * rows * columns, rows, columns);
    all.insert(all.end(), transposed.begin(), transposed.end());
  }
}

void DumpRecurrent(const cache::Layout& layout, const models::CacheBinding& binding, std::byte* slot,
                   const std::string& name, StateDump* dump) {
  const cache::RecurrentLayer& layer = layout.recurrent[binding.index];
  const auto heads = static_cast<size_t>(layer.delta_heads),
             rows = static_cast<size_t>(layer.delta_value_dim),
             columns = static_cast<size_t>(layer.delta_key_dim),
             tail_rows = static_cast<size_t>(layer.conv_tail);
  const auto* tail = reinterpret_cast<const float*>(slot + cache::ConvOffset(layout, binding.index));
  const std::vector<float> conv = Transposed(tail, tail_rows, static_cast<size_t>(layer.conv_dim));
  std::vector<float>& ordered = (*dump)[name + ".conv"];
  ordered = conv;
  const auto* state = reinterpret_cast<const float*>(slot + cache::DeltaOffset(layout, binding.index));
  const size_t values = conv.size() - heads * rows * tail_rows;  // the channels of the value heads come last
  for (size_t head = 0; head < heads; ++head) {
    const size_t stored = StoredHead(binding, heads, head);
    std::copy_n(&conv[values + stored * rows * tail_rows], rows * tail_rows,
                &ordered[values + head * rows * tail_rows]);
    std::vector<float>& all = (*dump)[name + ".delta"];
    const std::vector<float> transposed = Transposed(state + stored * rows * columns, rows, columns);
    all.insert(all.end(), transposed.begin(), transposed.end());
  }
  (*dump)[name + ".ssm"] = (*dump)[name + ".delta"];  // as later references call it
}

}  // namespace

StateDump DumpStates(const models::Model& model, const cache::StepView& view) {
  StateDump dump;
  const auto bindings = model.cache_bindings();
  for (size_t i = 0; i < bindings.size(); ++i) {
    const models::CacheBinding& binding = bindings[i];
    if (std::ranges::find(bindings, binding) != bindings.begin() + static_cast<ptrdiff_t>(i)) continue;
    const std::string name = fmt::format("layer{}", binding.decoder_layer);
    if (binding.state_space) {
      DumpStateSpace(model.cache_layout(), binding, view.Slot(0), name, &dump);
    } else if (binding.recurrent) {
      DumpRecurrent(model.cache_layout(), binding, view.Slot(0), name, &dump);
    } else {
      DumpKeys(model.cache_layout(), binding, view, name, &dump);
    }
  }
  return dump;
}

}  // namespace quire::runner::golden
