#include "runner/kernels/streamed_panels.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <memory>
#include <new>

#include "runner/kernels/panels.h"

namespace quire::runner::kernels {
namespace {

constexpr size_t kAlignment = 64;
// Half of a small second-level cache: activations and sums need the rest.
constexpr size_t kBytesAtOnce = 262'144;

// The size of a panel, or of a block of floats: what a product cannot take in parts.
size_t UnitBytes(const Matrix& w) {
  if (IsFloat(w.type)) return kFloatBlockOuts * weights::RowBytes(w.type, w.in);
  return PanelBytes(PanelFormatOf(w.type), w.in);
}

size_t UnitsAtOnce(const Matrix& w) {
  const size_t units = IsFloat(w.type) ? FloatBlockCount(w.out) : PanelCount(w.out);
  return std::clamp<size_t>(kBytesAtOnce / std::max<size_t>(UnitBytes(w), 1), 1, std::max<size_t>(units, 1));
}

struct AlignedDelete {
  void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t(kAlignment)); }
};

// Memory of this thread, at least so much; its contents are unspecified.
std::byte* Buffer(size_t bytes) {
  thread_local std::unique_ptr<std::byte[], AlignedDelete> memory;
  thread_local size_t size = 0;
  if (size < bytes) {
    memory.reset();
    memory.reset(static_cast<std::byte*>(::operator new[](bytes, std::align_val_t(kAlignment))));
    size = bytes;
  }
  return memory.get();
}

}  // namespace

size_t StreamedBytes(const Matrix& w) { return UnitBytes(w) * UnitsAtOnce(w); }

void ReadAhead(const Matrix& w) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(w.data) / page * page;
  const uintptr_t end =
      reinterpret_cast<uintptr_t>(w.data) + static_cast<size_t>(w.out) * weights::RowBytes(w.type, w.in);
  // Advice: where it is refused, pages are read as they are touched.
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_WILLNEED);
}

void RunInt8Gemm(const Matrix& w, GemmTask task) {
  Int8Gemm* const gemm = BestInt8Gemm(w.type);
  task.panels = w.near_panels();
  task.first = 0;
  if (w.panels != nullptr) return gemm(task);
  assert(w.streamed);
  const size_t at_once = UnitsAtOnce(w), last = task.end;
  std::byte* const buffer = Buffer(StreamedBytes(w));
  task.panels = buffer;
  for (; task.begin < last; task.begin = task.end) {
    task.first = task.begin;
    task.end = std::min(task.begin + at_once, last);
    FillPanelRange(w.data, w.type, w.out, w.in, task.begin, task.end, buffer);
    gemm(task);
  }
}

void RunFloatGemm(const Matrix& w, FloatGemmTask task) {
  task.panels = w.near_panels();
  task.first = 0;
  if (w.panels != nullptr) return FloatGemm(task);
  assert(w.streamed);
  const size_t at_once = UnitsAtOnce(w), last = task.end;
  std::byte* const buffer = Buffer(StreamedBytes(w));
  task.panels = buffer;
  for (; task.begin < last; task.begin = task.end) {
    task.first = task.begin;
    task.end = std::min(task.begin + at_once, last);
    FillFloatBlocks(w.data, w.type, w.out, w.in, task.begin, task.end, buffer);
    FloatGemm(task);
  }
}

}  // namespace quire::runner::kernels
