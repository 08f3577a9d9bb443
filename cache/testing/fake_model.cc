#include "cache/testing/fake_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

namespace quire::cache {
namespace {

constexpr size_t kRecordBytes = sizeof(TokenId);

struct KeyRow {
  int32_t token;
  int32_t position;
};

struct ValueRow {
  int32_t token;
  int32_t where;  // layer and head
};

// A value lies in the first bytes of its pieces.
template <class Copy>
void ForEachValuePart(const Layout& layout, size_t group, std::byte* head, Position row, const Copy& copy) {
  const ValuePlace place = PlaceOfValue(layout, group, static_cast<int32_t>(row));
  size_t done = 0;
  const auto part = [&](size_t at, size_t bytes) {
    const size_t some = std::min(bytes, sizeof(ValueRow) - done);
    if (some > 0) copy(head + at, done, some);
    done += some;
  };
  part(place.scale, place.scale_bytes);
  for (size_t i = 0; i < place.count; ++i) part(place.first + i * place.stride, place.bytes);
}

ValueRow ReadValue(const Layout& layout, size_t group, std::byte* head, Position row) {
  ValueRow value{};
  ForEachValuePart(layout, group, head, row, [&](const std::byte* at, size_t done, size_t bytes) {
    std::memcpy(reinterpret_cast<std::byte*>(&value) + done, at, bytes);
  });
  return value;
}

void WriteValue(const Layout& layout, size_t group, std::byte* head, Position row, const ValueRow& value) {
  ForEachValuePart(layout, group, head, row, [&](std::byte* at, size_t done, size_t bytes) {
    std::memcpy(at, reinterpret_cast<const std::byte*>(&value) + done, bytes);
  });
}

// A key lies in the first bytes of its row's planes.
template <class Copy>
void ForEachKeyPart(const Layout& layout, size_t group, std::byte* head, Position row, const Copy& copy) {
  size_t done = 0;
  ForEachKeyPlane(layout, group, [&](size_t plane, size_t bytes) {
    const size_t part = std::min(bytes, sizeof(KeyRow) - done);
    if (part > 0) copy(head + plane + bytes * static_cast<size_t>(row), done, part);
    done += part;
  });
}

KeyRow ReadKey(const Layout& layout, size_t group, std::byte* head, Position row) {
  KeyRow key{};
  ForEachKeyPart(layout, group, head, row, [&](const std::byte* at, size_t done, size_t bytes) {
    std::memcpy(reinterpret_cast<std::byte*>(&key) + done, at, bytes);
  });
  return key;
}

void WriteKey(const Layout& layout, size_t group, std::byte* head, Position row, const KeyRow& key) {
  ForEachKeyPart(layout, group, head, row, [&](std::byte* at, size_t done, size_t bytes) {
    std::memcpy(at, reinterpret_cast<const std::byte*>(&key) + done, bytes);
  });
}

// A row of a latent group.
struct LatentRow {
  KeyRow key;
  ValueRow value;
};

std::byte* PlaceOfRow(const Layout& layout, size_t group, int32_t layer, std::byte* page, Position position) {
  const int32_t row = RowOf(layout, layout.groups[group], position);
  return page + KeyOffset(layout, group, layer, 0) + static_cast<size_t>(row) * RowBytes(layout, group);
}

// What a row of the group that is written with `position` stands for; without a value, nothing is written.
std::optional<TokenId> Content(const AttentionGroup& group, const TokenList& tokens, Position position) {
  if ((position + 1) % group.stride != 0) return std::nullopt;
  TokenId content = 0;
  for (Position p = position + 1 - group.stride; p <= position; ++p) {
    content = content * 31 + tokens[static_cast<size_t>(p)];
  }
  return content;
}

const PageView* Find(const Layout& layout, std::span<const PageView> pages, Position position) {
  if (pages.empty()) return nullptr;
  const int64_t index = position / layout.page_tokens - pages.front().first / layout.page_tokens;
  if (index < 0 || index >= static_cast<int64_t>(pages.size())) return nullptr;
  const PageView* page = &pages[static_cast<size_t>(index)];
  return position >= page->first && position < page->first + page->tokens ? page : nullptr;
}

LatentRow ReadRow(const Layout& layout, size_t group, int32_t layer, int32_t head, std::byte* page,
                  Position position) {
  LatentRow row{};
  if (layout.groups[group].latent > 0) {
    std::memcpy(&row, PlaceOfRow(layout, group, layer, page, position), sizeof row);
    return row;
  }
  const Position at = position % layout.page_tokens;
  row.key = ReadKey(layout, group, page + KeyOffset(layout, group, layer, head), at);
  row.value = ReadValue(layout, group, page + ValueOffset(layout, group, layer, head), at);
  return row;
}

std::string CheckRow(const Layout& layout, std::span<const PageView> pages, size_t group, Position position,
                     TokenId token) {
  const PageView* page = Find(layout, pages, position);
  if (page == nullptr) return fmt::format("group {}: position {} is not visible", group, position);
  const AttentionGroup& shape = layout.groups[group];
  for (int32_t layer = 0; layer < shape.layers; ++layer) {
    for (int32_t head = 0; head < shape.kv_heads; ++head) {
      const auto [key, value] = ReadRow(layout, group, layer, head, page->base, position);
      if (key.token == token && key.position == position && value.token == token &&
          value.where == layer * 1000 + head) {
        continue;
      }
      return fmt::format("group {} layer {} head {} position {}: want token {}, key {}@{}, value {}/{}",
                         group, layer, head, position, token, key.token, key.position, value.token,
                         value.where);
    }
  }
  return {};
}

void WriteRow(const Layout& layout, std::span<const PageView> pages, size_t group, Position position,
              TokenId token) {
  const PageView* page = Find(layout, pages, position);
  if (page == nullptr) return;
  const AttentionGroup& shape = layout.groups[group];
  for (int32_t layer = 0; layer < shape.layers; ++layer) {
    for (int32_t head = 0; head < shape.kv_heads; ++head) {
      const KeyRow key{token, static_cast<int32_t>(position)};
      const ValueRow value{token, layer * 1000 + head};
      if (shape.latent > 0) {
        const LatentRow row{key, value};
        std::memcpy(PlaceOfRow(layout, group, layer, page->base, position), &row, sizeof row);
        continue;
      }
      WriteKey(layout, group, page->base + KeyOffset(layout, group, layer, head),
               position % layout.page_tokens, key);
      WriteValue(layout, group, page->base + ValueOffset(layout, group, layer, head),
                 position % layout.page_tokens, value);
    }
  }
}

// Pages in order, without gaps, from `oldest` to `end`.
std::string CheckRange(const Layout& layout, std::span<const PageView> pages, size_t group, Position oldest,
                       Position end) {
  Position next = oldest;
  for (const PageView& page : pages) {
    if (page.first != next || page.tokens <= 0) {
      return fmt::format("group {}: page shows {} from {}, want {}", group, page.tokens, page.first, next);
    }
    next += page.tokens;
    if (next != end && next % layout.page_tokens != 0) {
      return fmt::format("group {}: a page ends at {} of {}", group, next, end);
    }
  }
  if (next != end) return fmt::format("group {}: pages end at {}, want {}", group, next, end);
  return {};
}

// A hash of 8 bits, which bfloat16 keeps whole.
float FoldWhole(float before, TokenId token, uint32_t element, size_t layer) {
  const auto mixed = (static_cast<uint32_t>(before) ^ static_cast<uint32_t>(token)) * 2654435761U + element +
                     static_cast<uint32_t>(layer) * 97U;
  return static_cast<float>((mixed ^ (mixed >> 16)) & 0xffU);
}

void CopyLayer(const Layout& layout, size_t layer, const std::byte* from, std::byte* to) {
  const size_t begin = ConvOffset(layout, layer);
  const size_t end = layer + 1 < layout.recurrent.size() ? ConvOffset(layout, layer + 1) : SlotBytes(layout);
  std::memcpy(to + begin, from + begin, end - begin);
}

}  // namespace

AttentionGroup FullGroup() { return {.layers = 2, .kv_heads = 1, .head_dim = 2}; }

AttentionGroup WindowGroup(int32_t window) {
  return {.layers = 1, .kv_heads = 2, .head_dim = 4, .element = ElementType::kF16, .window = window};
}

AttentionGroup RowGroup(int32_t window) {
  return {.layers = 2, .kv_heads = 1, .head_dim = 5, .window = window, .latent = 5};
}

AttentionGroup BlockGroup(int32_t stride) {
  AttentionGroup group = RowGroup();
  group.stride = stride;
  return group;
}

AttentionGroup ChunkGroup(int32_t chunk) {
  AttentionGroup group = WindowGroup(chunk);
  group.chunked = true;
  return group;
}

RecurrentLayer ConvLayer() { return {.conv_tail = 2, .conv_dim = 3, .record_bytes = kRecordBytes}; }

RecurrentLayer DeltaLayer() {
  return {.conv_tail = 3,
          .conv_dim = 2,
          .delta_heads = 1,
          .delta_value_dim = 2,
          .delta_key_dim = 2,
          .record_bytes = kRecordBytes};
}

RecurrentLayer WideDeltaLayer() {
  RecurrentLayer layer = DeltaLayer();
  layer.delta_key_dim = 16;
  return layer;
}

std::string CheckVisible(const Layout& layout, const StepView& view, size_t i, const TokenList& tokens) {
  const Position offset = view.offset(i);
  const Position end = offset + view.new_tokens(i);
  if (end != static_cast<Position>(tokens.size())) {
    return fmt::format("sequence ends at {}, want {}", end, tokens.size());
  }
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    const std::span<const PageView> pages = view.Pages(i, g);
    const Position oldest = OldestVisible(layout.groups[g], offset);
    if (std::string wrong = CheckRange(layout, pages, g, oldest, end); !wrong.empty()) return wrong;
    for (Position p = oldest; p < end; ++p) {
      const auto content = Content(layout.groups[g], tokens, p);
      if (!content) continue;
      if (std::string wrong = CheckRow(layout, pages, g, p, *content); !wrong.empty()) return wrong;
    }
  }
  return {};
}

void FoldToken(const Layout& layout, size_t layer, std::byte* slot, TokenId token) {
  const RecurrentLayer& shape = layout.recurrent[layer];
  const size_t row = ElementBytes(ElementType::kF32, shape.conv_dim);
  if (shape.conv_tail > 0) {
    std::byte* conv = slot + ConvOffset(layout, layer);
    const auto rows = static_cast<size_t>(shape.conv_tail);
    std::memmove(conv, conv + row, (rows - 1) * row);
    std::memset(conv + (rows - 1) * row, token & 0xff, row);
  }
  std::byte* delta = slot + DeltaOffset(layout, layer);
  const ptrdiff_t count = ptrdiff_t{1} * shape.delta_heads * shape.delta_value_dim * shape.delta_key_dim;
  for (ptrdiff_t e = 0; e < count; ++e) {
    uint32_t bits;
    std::memcpy(&bits, delta + e * 4, 4);
    if (layout.stored_state != ElementType::kF32) {
      const float whole = FoldWhole(std::bit_cast<float>(bits), token, static_cast<uint32_t>(e), layer);
      std::memcpy(delta + e * 4, &whole, 4);
      continue;
    }
    bits = (bits ^ static_cast<uint32_t>(token)) * 2654435761U + static_cast<uint32_t>(e) +
           static_cast<uint32_t>(layer) * 97U;
    std::memcpy(delta + e * 4, &bits, 4);
  }
}

std::string CheckState(const Layout& layout, const StepView& view, size_t i, const TokenList& tokens) {
  if (layout.recurrent.empty()) return {};
  std::vector<std::byte> want(SlotBytes(layout));
  for (const TokenId token : tokens) {
    for (size_t layer = 0; layer < layout.recurrent.size(); ++layer)
      FoldToken(layout, layer, want.data(), token);
  }
  const std::byte* slot = view.Slot(i);
  if (slot == nullptr) return tokens.empty() ? std::string() : "no recurrent state";
  if (std::memcmp(slot, want.data(), want.size()) != 0)
    return "recurrent state is not the fold of the tokens";
  return {};
}

void RotateFakeKeys(const Layout& layout, const MovedKeys& moved) {
  for (int32_t row = moved.row; row < moved.row + moved.tokens; ++row) {
    if (layout.groups[moved.group].latent > 0) {
      std::byte* const at = moved.head + static_cast<size_t>(row) * RowBytes(layout, moved.group);
      LatentRow latent{};
      std::memcpy(&latent, at, sizeof latent);
      latent.key.position += static_cast<int32_t>(moved.new_first - moved.old_first);
      std::memcpy(at, &latent, sizeof latent);
      continue;
    }
    KeyRow key = ReadKey(layout, moved.group, moved.head, row);
    key.position += static_cast<int32_t>(moved.new_first - moved.old_first);
    WriteKey(layout, moved.group, moved.head, row, key);
  }
}

void ReplayTokens(const Layout& layout, size_t layer, std::byte* slot, std::span<const std::byte> inputs,
                  int32_t tokens) {
  for (int32_t t = 0; t < tokens; ++t) {
    TokenId token;
    std::memcpy(&token, inputs.subspan(static_cast<size_t>(t) * kRecordBytes, kRecordBytes).data(),
                kRecordBytes);
    FoldToken(layout, layer, slot, token);
  }
}

std::string RunStep(const Layout& layout, const StepView& step, std::span<const TokenList> tokens) {
  for (size_t i = 0; i < step.sequences(); ++i) {
    const Position offset = step.offset(i);
    const Position end = offset + step.new_tokens(i);
    for (size_t g = 0; g < layout.groups.size(); ++g) {
      for (Position p = offset; p < end; ++p) {
        const auto content = Content(layout.groups[g], tokens[i], p);
        if (content) WriteRow(layout, step.Pages(i, g), g, p, *content);
      }
    }
    std::byte* slot = step.Slot(i);
    for (size_t layer = 0; layer < layout.recurrent.size(); ++layer) {
      std::byte* record = step.Record(i, layer);
      const std::span<const StateCapture> captures = step.Captures(i);
      auto capture = captures.begin();
      for (Position p = offset; p < end; ++p) {
        if (capture != captures.end() && capture->after == p - offset) {
          CopyLayer(layout, layer, slot, (capture++)->slot);
        }
        const TokenId token = tokens[i][static_cast<size_t>(p)];
        FoldToken(layout, layer, slot, token);
        if (record != nullptr)
          std::memcpy(record + static_cast<size_t>(p - offset) * kRecordBytes, &token, kRecordBytes);
      }
    }
  }
  for (size_t i = 0; i < step.sequences(); ++i) {
    std::string wrong = CheckVisible(layout, step, i, tokens[i]);
    if (wrong.empty()) wrong = CheckState(layout, step, i, tokens[i]);
    if (!wrong.empty()) return fmt::format("sequence {}: {}", i, wrong);
  }
  return {};
}

}  // namespace quire::cache
