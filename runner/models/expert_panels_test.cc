#include "runner/models/expert_panels.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "runner/models/panel_store.h"

namespace quire::runner::models {
namespace {

constexpr int64_t kOut = 32, kIn = 64;

// F16 matrices whose bytes are their number, with memory for some of them in panels.
class Experts : public testing::Test {
 protected:
  Experts() {
    for (size_t e = 0; e < 6; ++e) {
      stored_.emplace_back(weights::RowBytes(weights::DataType::kF16, kIn) * kOut,
                           static_cast<std::byte>(e + 1));
      matrices_.push_back({.data = stored_[e].data(),
                           .type = weights::DataType::kF16,
                           .out = kOut,
                           .in = kIn,
                           .streamed = true});
    }
  }
  void Give(ExpertPanels& panels, size_t slots) const {
    panels.set_budget(static_cast<int64_t>(slots * PackedBytes(matrices_[0])));
    for (const kernels::Matrix& matrix : matrices_) panels.Add(matrix);
  }
  // Whether each of them then has panels.
  std::vector<bool> Use(ExpertPanels& panels, const std::vector<size_t>& experts) {
    std::vector<kernels::MatMulPart> parts;
    for (const size_t e : experts) parts.push_back({.weight = matrices_[e]});
    panels.Provide(pool_, parts);
    std::vector<bool> in_panels;
    for (size_t i = 0; i < parts.size(); ++i) {
      const std::byte* const at = parts[i].weight.panels;
      in_panels.push_back(at != nullptr);
      if (at == nullptr) continue;
      EXPECT_EQ(static_cast<std::byte>(experts[i] + 1), *at) << "another's panels";
    }
    return in_panels;
  }

  ThreadPool pool_{2};
  std::vector<std::vector<std::byte>> stored_;
  std::vector<kernels::Matrix> matrices_;
};

using Flags = std::vector<bool>;

TEST_F(Experts, GetSlotsWhileThereAreSome) {
  ExpertPanels panels;
  Give(panels, 3);
  EXPECT_EQ((Flags{true, true}), Use(panels, {4, 1}));
  EXPECT_EQ((Flags{true, true, false}), Use(panels, {1, 2, 3}));
  EXPECT_EQ(3U, panels.filled());
  EXPECT_EQ(panels.bytes() / 2, panels.slot_bytes());
}

TEST_F(Experts, PassingInTurnReplaceNone) {
  ExpertPanels panels;
  Give(panels, 3);
  for (int round = 0; round < 1000; ++round) {
    for (size_t e = 0; e < 6; ++e) EXPECT_EQ((Flags{e < 3}), Use(panels, {e}));
  }
  EXPECT_EQ(3U, panels.filled());
}

TEST_F(Experts, UsedMoreOftenTakeTheSlotOfTheLeastUsed) {
  ExpertPanels panels;
  Give(panels, 2);
  Use(panels, {0, 1});
  Use(panels, {0});
  EXPECT_EQ((Flags{false}), Use(panels, {5}));
  EXPECT_EQ((Flags{false}), Use(panels, {5}));
  EXPECT_EQ((Flags{true}), Use(panels, {5})) << "three uses against one";
  EXPECT_EQ((Flags{true, false}), Use(panels, {0, 1}));
}

TEST_F(Experts, OfOneProductLeaveEachOtherTheirSlots) {
  ExpertPanels panels;
  Give(panels, 1);
  Use(panels, {0});
  for (int i = 0; i < 9; ++i) EXPECT_EQ((Flags{true, false}), Use(panels, {0, 1}));
  for (int i = 0; i < 9; ++i) Use(panels, {1, 1, 1});
  EXPECT_EQ((Flags{true}), Use(panels, {1}));
}

TEST_F(Experts, ForgetOldUse) {
  ExpertPanels panels;
  Give(panels, 1);
  for (int i = 0; i < 20'000; ++i) Use(panels, {0});
  int needed = 0;
  while (!Use(panels, {1})[0]) ASSERT_LT(++needed, 2000);
}

TEST_F(Experts, WithoutRoomStayInTheFile) {
  ExpertPanels panels;
  Give(panels, 0);
  for (int i = 0; i < 5; ++i) EXPECT_EQ((Flags{false}), Use(panels, {0}));
  EXPECT_EQ(0U, panels.filled());
  EXPECT_EQ(0, panels.slot_bytes());
}

}  // namespace
}  // namespace quire::runner::models
