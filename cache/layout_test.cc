#include "cache/layout.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace quire::cache {
namespace {

Layout OneGroup(ElementType element) {
  Layout layout{.page_tokens = 32};
  layout.groups.push_back({.layers = 3, .kv_heads = 2, .head_dim = 64, .element = element});
  return layout;
}

TEST(Layout, BytesPerElementType) {
  EXPECT_EQ(ElementBytes(ElementType::kF32, 64), 256u);
  EXPECT_EQ(ElementBytes(ElementType::kF16, 64), 128u);
  EXPECT_EQ(ElementBytes(ElementType::kBF16, 64), 128u);
  EXPECT_EQ(ElementBytes(ElementType::kQ8_0, 64), 68u);
}

TEST(Layout, KeysAndValuesOfOneHeadAreContiguousAndTileThePage) {
  for (const ElementType element :
       {ElementType::kF32, ElementType::kF16, ElementType::kBF16, ElementType::kQ8_0, ElementType::kI16}) {
    const Layout layout = OneGroup(element);
    const size_t head = 32 * (ElementBytes(element, 64) + (element == ElementType::kI16 ? 4 : 0));
    size_t next = 0;
    for (int32_t layer = 0; layer < 3; ++layer) {
      for (int32_t h = 0; h < 2; ++h, next += head) EXPECT_EQ(KeyOffset(layout, 0, layer, h), next);
      for (int32_t h = 0; h < 2; ++h, next += head) EXPECT_EQ(ValueOffset(layout, 0, layer, h), next);
    }
    EXPECT_EQ(PageBytes(layout, 0), (next + 63) / 64 * 64);
  }
}

// Every byte of a head's values belongs to one token.
TEST(Layout, ValuesOfTokensTileTheirHead) {
  for (const ElementType element : {ElementType::kF16, ElementType::kQ8_0, ElementType::kI16}) {
    const Layout layout = OneGroup(element);
    std::vector<int> owners(ValueOffset(layout, 0, 0, 1) - ValueOffset(layout, 0, 0, 0));
    for (int32_t row = 0; row < layout.page_tokens; ++row) {
      const ValuePlace place = PlaceOfValue(layout, 0, row);
      for (size_t i = 0; i < place.scale_bytes; ++i) ++owners.at(place.scale + i);
      for (size_t piece = 0; piece < place.count; ++piece) {
        for (size_t i = 0; i < place.bytes; ++i) ++owners.at(place.first + piece * place.stride + i);
      }
    }
    EXPECT_EQ(std::ranges::count(owners, 1), std::ssize(owners));
  }
}

// The blocks that end in a page have rows of their own, in order, and no page has more than it has room for.
TEST(Layout, RowsOfBlocksFillTheirPages) {
  for (const int32_t page_tokens : {1, 4, 32}) {
    for (const int32_t stride : {1, 2, 3, 4, 31, 128}) {
      const Layout layout{
          .page_tokens = page_tokens,
          .groups = {{.layers = 2, .kv_heads = 1, .head_dim = 8, .latent = 8, .stride = stride}}};
      ASSERT_TRUE(Validate(layout));
      const AttentionGroup& group = layout.groups[0];
      for (Position page = 0; page < 300; page += page_tokens) {
        int32_t next = 0;
        for (Position p = page; p < page + page_tokens; ++p) {
          EXPECT_EQ(RowOf(layout, group, p), next);
          if ((p + 1) % stride == 0) ++next;
        }
        EXPECT_LE(next, RowsOfPage(layout, group));
      }
      EXPECT_EQ(KeyOffset(layout, 0, 1, 0), static_cast<size_t>(RowsOfPage(layout, group)) * 32);
    }
  }
}

TEST(Layout, OnlyRowsOfFullAttentionStandForBlocks) {
  const auto valid = [](AttentionGroup group) { return Validate({.groups = {group}}).has_value(); };
  AttentionGroup group{.layers = 1, .kv_heads = 1, .head_dim = 8, .latent = 8, .stride = 4};
  EXPECT_TRUE(valid(group));
  group.window = 8;
  EXPECT_FALSE(valid(group));
  group.window = 0, group.latent = 0;
  EXPECT_FALSE(valid(group));
  group.latent = 8, group.stride = 0;
  EXPECT_FALSE(valid(group));
}

TEST(Layout, SlotPartsAreAlignedAndFollowEachOther) {
  Layout layout;
  layout.recurrent.push_back({.conv_tail = 3, .conv_dim = 5});
  layout.recurrent.push_back(
      {.conv_tail = 2, .conv_dim = 16, .delta_heads = 2, .delta_value_dim = 3, .delta_key_dim = 4});
  ASSERT_TRUE(Validate(layout));
  EXPECT_EQ(ConvOffset(layout, 0), 0u);
  EXPECT_EQ(DeltaOffset(layout, 0), 64u);
  EXPECT_EQ(ConvOffset(layout, 1), 64u);
  EXPECT_EQ(DeltaOffset(layout, 1), 64u + 128u);
  EXPECT_EQ(SlotBytes(layout), 64u + 128u + 128u);
}

TEST(Layout, OldestVisiblePosition) {
  const AttentionGroup full{.layers = 1, .kv_heads = 1, .head_dim = 1};
  AttentionGroup window = full;
  window.window = 4;
  EXPECT_EQ(OldestVisible(full, 100), 0);
  EXPECT_EQ(OldestVisible(window, 2), 0);
  EXPECT_EQ(OldestVisible(window, 3), 0);
  EXPECT_EQ(OldestVisible(window, 4), 1);
  window.chunked = true;
  EXPECT_EQ(OldestVisible(window, 3), 0);
  EXPECT_EQ(OldestVisible(window, 4), 4);
  EXPECT_EQ(OldestVisible(window, 7), 4);
}

TEST(Layout, RefusesSizesOutOfRange) {
  const auto refused = [](auto change) {
    Layout layout = OneGroup(ElementType::kF32);
    layout.recurrent.push_back({.conv_tail = 2, .conv_dim = 8});
    EXPECT_TRUE(Validate(layout));
    change(layout);
    const auto result = Validate(layout);
    EXPECT_FALSE(result.has_value());
    if (!result) {
      EXPECT_FALSE(result.error().message.empty());
    }
  };
  refused([](Layout& l) { l.page_tokens = 0; });
  refused([](Layout& l) { l.groups[0].layers = -1; });
  refused([](Layout& l) { l.groups[0].kv_heads = 0; });
  refused([](Layout& l) { l.groups[0].head_dim = INT32_MAX; });
  refused([](Layout& l) { l.groups[0].window = -5; });
  refused([](Layout& l) { l.groups[0].chunked = true; });
  refused([](Layout& l) { l.groups[0].element = ElementType::kQ8_0, l.groups[0].head_dim = 48; });
  refused([](Layout& l) { l.groups[0].element = ElementType::kI16, l.groups[0].head_dim = 47; });
  refused([](Layout& l) { l.groups[0].element = ElementType::kI16, l.page_tokens = 31; });
  refused([](Layout& l) {
    l.groups[0].element = ElementType::kI16, l.groups[0].latent = 4, l.groups[0].kv_heads = 1;
  });
  refused([](Layout& l) { l.groups[0].layers = l.groups[0].kv_heads = l.groups[0].head_dim = 1 << 20; });
  refused([](Layout& l) { l.recurrent[0].conv_dim = -1; });
  refused([](Layout& l) { l.recurrent[0] = {}; });
  refused([](Layout& l) { l.groups.clear(), l.recurrent.clear(); });
  refused([](Layout& l) {
    l.recurrent[0].delta_heads = l.recurrent[0].delta_value_dim = l.recurrent[0].delta_key_dim = 1 << 20;
  });
}

}  // namespace
}  // namespace quire::cache
