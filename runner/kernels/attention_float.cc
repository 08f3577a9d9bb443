// Attention over keys and values that are float32 or become it.
#include "runner/kernels/attention_work.h"

// foreach_target.h re-includes this file, so it comes before all that is compiled once per target.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runner/kernels/attention_float.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>
#include "runner/kernels/attention_task.inl"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace quire::runner::kernels::HWY_NAMESPACE {

void RunFloatTaskOfTarget(const AttentionWork& work, const AttentionPlan::Item& item,
                          std::span<const AttentionPlan::Piece> pieces) {
  RunAttentionTask<FloatTiles>(work, item, pieces);
}

}  // namespace quire::runner::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::runner::kernels {
namespace {

HWY_EXPORT(RunFloatTaskOfTarget);

}  // namespace

void RunFloatTask(const AttentionWork& work, const AttentionPlan::Item& item,
                  std::span<const AttentionPlan::Piece> pieces) {
  HWY_DYNAMIC_DISPATCH(RunFloatTaskOfTarget)(work, item, pieces);
}

}  // namespace quire::runner::kernels
#endif  // HWY_ONCE
