// Attention over keys and values of int8 (attention_int8.inl).
#include "runner/kernels/attention_work.h"

// foreach_target.h re-includes this file, so it comes before all that is compiled once per target.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runner/kernels/attention_int8.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>
#include "runner/kernels/attention_task.inl"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace quire::runner::kernels::HWY_NAMESPACE {

void RunInt8TaskOfTarget(const AttentionWork& work, const AttentionPlan::Item& item,
                         std::span<const AttentionPlan::Piece> pieces) {
  RunAttentionTask<Int8Tiles>(work, item, pieces);
}

}  // namespace quire::runner::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::runner::kernels {
namespace {

HWY_EXPORT(RunInt8TaskOfTarget);

}  // namespace

void RunInt8Task(const AttentionWork& work, const AttentionPlan::Item& item,
                 std::span<const AttentionPlan::Piece> pieces) {
  HWY_DYNAMIC_DISPATCH(RunInt8TaskOfTarget)(work, item, pieces);
}

}  // namespace quire::runner::kernels
#endif  // HWY_ONCE
