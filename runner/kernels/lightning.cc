#include "runner/kernels/lightning.h"

#include <algorithm>
#include <cassert>

// foreach_target.h re-includes this file, so it comes before all that is compiled once per target.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runner/kernels/lightning.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>
#include "runner/kernels/activations.inl"
#include "runner/kernels/rows.inl"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace quire::runner::kernels::HWY_NAMESPACE {

void SiluHead(const float* from, size_t size, float* to) {
  ForEachElement(
      size, to, [](VF32 v) HWY_ATTR { return Silu(v); }, from);
}

}  // namespace quire::runner::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::runner::kernels {
namespace {

HWY_EXPORT(SiluHead);

}  // namespace

void SiluToScanOrder(ThreadPool& pool, int64_t heads, int64_t dim, std::span<const float> x,
                     std::span<float> to) {
  const auto head_count = static_cast<size_t>(heads), size = static_cast<size_t>(dim);
  const size_t inner = head_count * size, width = 3 * inner, rows = x.size() / width;
  assert(x.size() == rows * width && to.size() == x.size());
  constexpr size_t kElementsPerTask = 16'384;
  const size_t per_task = std::max<size_t>(1, kElementsPerTask / width);
  pool.ParallelFor((rows + per_task - 1) / per_task, [&](size_t task) {
    const size_t end = std::min(rows, (task + 1) * per_task);
    for (size_t row = task * per_task; row < end; ++row) {
      for (size_t head = 0; head < head_count; ++head) {
        for (size_t part = 0; part < 3; ++part) {
          HWY_DYNAMIC_DISPATCH(SiluHead)
          (x.data() + row * width + (3 * head + part) * size, size,
           to.data() + row * width + (2 - part) * inner + head * size);
        }
      }
    }
  });
}

}  // namespace quire::runner::kernels
#endif  // HWY_ONCE
