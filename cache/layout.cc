#include "cache/layout.h"

#include <fmt/format.h>

#include <algorithm>

namespace quire::cache {
namespace {

constexpr size_t kAlign = 64;
constexpr int32_t kMaxPageTokens = 1 << 16;
constexpr int32_t kMaxDimension = 1 << 20;
constexpr size_t kMaxLayers = 1 << 12;
constexpr uint64_t kMaxBlockBytes = uint64_t{1} << 40;

size_t AlignUp(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

// Bytes of one token's key or value in one head.
size_t VectorBytes(const AttentionGroup& group) {
  return ElementBytes(group.element, group.head_dim) +
         (group.element == ElementType::kI16 ? sizeof(float) : 0);
}

// Bytes of all K (or V, or rows of both) of one head of one layer in a page.
size_t HeadBytes(const Layout& layout, const AttentionGroup& group) {
  return VectorBytes(group) * static_cast<size_t>(RowsOfPage(layout, group));
}

size_t ConvBytes(const RecurrentLayer& layer) {
  return AlignUp(ElementBytes(ElementType::kF32, int64_t{layer.conv_tail} * layer.conv_dim));
}

int64_t DeltaNumbers(const RecurrentLayer& layer) {
  return int64_t{layer.delta_heads} * layer.delta_value_dim * layer.delta_key_dim;
}

size_t DeltaBytes(const RecurrentLayer& layer, ElementType type = ElementType::kF32) {
  return AlignUp(ElementBytes(type, DeltaNumbers(layer)));
}

std::unexpected<Error> Bad(std::string message) {
  return std::unexpected<Error>(Error{ErrorCode::kInvalid, std::move(message)});
}

// False where the product leaves what a page or slot may have.
bool Bounded(std::initializer_list<int64_t> factors) {
  uint64_t product = 1;
  for (const int64_t factor : factors) {
    if (factor < 0 || __builtin_mul_overflow(product, static_cast<uint64_t>(factor), &product)) return false;
  }
  return product <= kMaxBlockBytes;
}

Result<void> ValidateGroup(const Layout& layout, size_t index) {
  const AttentionGroup& group = layout.groups[index];
  const auto in_range = [](int32_t value) { return value > 0 && value <= kMaxDimension; };
  if (!in_range(group.layers)) return Bad(fmt::format("groups[{}].layers = {}", index, group.layers));
  if (!in_range(group.kv_heads)) return Bad(fmt::format("groups[{}].kv_heads = {}", index, group.kv_heads));
  if (!in_range(group.head_dim)) return Bad(fmt::format("groups[{}].head_dim = {}", index, group.head_dim));
  if (group.window < 0 || (group.chunked && group.window == 0)) {
    return Bad(fmt::format("groups[{}].window = {}", index, group.window));
  }
  if (group.element > ElementType::kI16) return Bad(fmt::format("groups[{}].element is unknown", index));
  if (group.element == ElementType::kQ8_0 && group.head_dim % 32 != 0) {
    return Bad(fmt::format("groups[{}].head_dim = {}: q8_0 needs a multiple of 32", index, group.head_dim));
  }
  if (group.latent < 0 || group.latent > group.head_dim || (group.latent > 0 && group.kv_heads != 1)) {
    return Bad(fmt::format("groups[{}].latent = {}", index, group.latent));
  }
  if (!in_range(group.stride) || (group.stride > 1 && (group.latent == 0 || group.window > 0))) {
    return Bad(fmt::format("groups[{}].stride = {}", index, group.stride));
  }
  if (group.element == ElementType::kQ8_0 && group.latent % 32 != 0) {
    return Bad(fmt::format("groups[{}].latent = {}: q8_0 needs a multiple of 32", index, group.latent));
  }
  if (group.element == ElementType::kI16 &&
      (group.head_dim % 2 != 0 || layout.page_tokens % 2 != 0 || group.latent != 0)) {
    return Bad(fmt::format("groups[{}]: i16 needs even head_dim and page_tokens, and no latent", index));
  }
  if (!Bounded({group.layers, 2, group.kv_heads, layout.page_tokens, int64_t{group.head_dim} + 1, 4})) {
    return Bad(fmt::format("groups[{}]: a page would exceed {} bytes", index, kMaxBlockBytes));
  }
  return {};
}

Result<void> ValidateRecurrent(const Layout& layout, size_t index) {
  const RecurrentLayer& layer = layout.recurrent[index];
  const auto in_range = [](int32_t value) { return value >= 0 && value <= kMaxDimension; };
  if (!in_range(layer.conv_tail) || !in_range(layer.conv_dim) || !in_range(layer.delta_heads) ||
      !in_range(layer.delta_value_dim) || !in_range(layer.delta_key_dim) || !in_range(layer.record_bytes)) {
    return Bad(fmt::format("recurrent[{}]: a size is out of range", index));
  }
  const auto layers = static_cast<int64_t>(layout.recurrent.size());
  if (!Bounded({layers, layer.conv_tail + 1, layer.conv_dim + int64_t{kAlign}, 4}) ||
      !Bounded({layers, layer.delta_heads + 1, layer.delta_value_dim + 1, layer.delta_key_dim + 64, 4})) {
    return Bad(fmt::format("recurrent[{}]: a slot would exceed {} bytes", index, kMaxBlockBytes));
  }
  if (layout.stored_state == ElementType::kQ8_0 && DeltaNumbers(layer) % 32 != 0) {
    return Bad(fmt::format("recurrent[{}]: a delta state of {} numbers: q8_0 needs a multiple of 32", index,
                           DeltaNumbers(layer)));
  }
  return {};
}

}  // namespace

size_t ElementBytes(ElementType type, int64_t elements) {
  const auto count = static_cast<size_t>(elements);
  switch (type) {
    case ElementType::kF32:
      return count * 4;
    case ElementType::kF16:
    case ElementType::kBF16:
    case ElementType::kI16:
      return count * 2;
    case ElementType::kQ8_0:
      return count / 32 * 34;
  }
  return 0;
}

Result<void> Validate(const Layout& layout) {
  if (layout.page_tokens <= 0 || layout.page_tokens > kMaxPageTokens) {
    return Bad(fmt::format("page_tokens = {}", layout.page_tokens));
  }
  if (layout.stored_state == ElementType::kF16 || layout.stored_state > ElementType::kQ8_0) {
    return Bad("stored_state must be f32, bf16 or q8_0");
  }
  if (layout.groups.size() > kMaxLayers) return Bad("too many attention groups");
  if (layout.recurrent.size() > kMaxLayers) return Bad("too many recurrent layers");
  for (size_t i = 0; i < layout.groups.size(); ++i) {
    if (auto ok = ValidateGroup(layout, i); !ok) return ok;
  }
  for (size_t i = 0; i < layout.recurrent.size(); ++i) {
    if (auto ok = ValidateRecurrent(layout, i); !ok) return ok;
  }
  if (layout.groups.empty() && layout.recurrent.empty()) return Bad("a layout needs at least one layer");
  if (!layout.recurrent.empty() && SlotBytes(layout) == 0) return Bad("recurrent layers without any state");
  return {};
}

Position OldestVisible(const AttentionGroup& group, Position position) {
  if (group.window == 0) return 0;
  if (group.chunked) return position - position % group.window;
  return std::max<Position>(0, position - group.window + 1);
}

int32_t RowsOfPage(const Layout& layout, const AttentionGroup& group) {
  return (layout.page_tokens + group.stride - 1) / group.stride;
}

int32_t RowOf(const Layout& layout, const AttentionGroup& group, Position position) {
  const Position first = position - position % layout.page_tokens;
  return static_cast<int32_t>(position / group.stride - first / group.stride);
}

size_t PageBytes(const Layout& layout, size_t group) {
  const AttentionGroup& g = layout.groups[group];
  const size_t parts = g.latent > 0 ? 1 : 2;
  return AlignUp(static_cast<size_t>(g.layers) * parts * static_cast<size_t>(g.kv_heads) *
                 HeadBytes(layout, g));
}

size_t RowBytes(const Layout& layout, size_t group) {
  const AttentionGroup& g = layout.groups[group];
  return VectorBytes(g);
}

size_t KeyOffset(const Layout& layout, size_t group, int32_t layer, int32_t kv_head) {
  const AttentionGroup& g = layout.groups[group];
  if (g.latent > 0) return static_cast<size_t>(layer) * HeadBytes(layout, g);
  return (static_cast<size_t>(layer) * 2 * static_cast<size_t>(g.kv_heads) + static_cast<size_t>(kv_head)) *
         HeadBytes(layout, g);
}

size_t ValueOffset(const Layout& layout, size_t group, int32_t layer, int32_t kv_head) {
  const AttentionGroup& g = layout.groups[group];
  if (g.latent > 0) {
    return KeyOffset(layout, group, layer, kv_head) + ElementBytes(g.element, g.head_dim - g.latent);
  }
  return KeyOffset(layout, group, layer, kv_head) + static_cast<size_t>(g.kv_heads) * HeadBytes(layout, g);
}

ValuePlace PlaceOfValue(const Layout& layout, size_t group, int32_t row) {
  const AttentionGroup& g = layout.groups[group];
  const auto token = static_cast<size_t>(row), numbers = static_cast<size_t>(g.head_dim);
  const size_t bytes = VectorBytes(g);
  if (g.element != ElementType::kI16) return {token * bytes, bytes, 1, bytes, 0, 0};
  constexpr size_t kPair = 2 * sizeof(int16_t);
  const size_t scales = static_cast<size_t>(layout.page_tokens) * sizeof(float);
  const size_t first = scales + token / 2 * numbers * kPair + token % 2 * sizeof(int16_t);
  return {first, sizeof(int16_t), numbers, kPair, token * sizeof(float), sizeof(float)};
}

size_t SlotBytes(const Layout& layout) {
  size_t bytes = 0;
  for (const RecurrentLayer& layer : layout.recurrent) bytes += ConvBytes(layer) + DeltaBytes(layer);
  return bytes;
}

size_t StoredSlotBytes(const Layout& layout) {
  size_t bytes = 0;
  for (const RecurrentLayer& layer : layout.recurrent) {
    bytes += ConvBytes(layer) + DeltaBytes(layer, layout.stored_state);
  }
  return bytes;
}

size_t StoredDeltaBytes(const Layout& layout, size_t recurrent_layer) {
  return DeltaBytes(layout.recurrent[recurrent_layer], layout.stored_state);
}

size_t ConvOffset(const Layout& layout, size_t recurrent_layer) {
  size_t bytes = 0;
  for (size_t i = 0; i < recurrent_layer; ++i) {
    bytes += ConvBytes(layout.recurrent[i]) + DeltaBytes(layout.recurrent[i]);
  }
  return bytes;
}

size_t DeltaOffset(const Layout& layout, size_t recurrent_layer) {
  return ConvOffset(layout, recurrent_layer) + ConvBytes(layout.recurrent[recurrent_layer]);
}

}  // namespace quire::cache
