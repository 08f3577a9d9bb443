#include "runner/models/panel_memory.h"

#include <sys/mman.h>

#include <utility>

#include "runner/kernels/float_panels.h"
#include "runner/kernels/panels.h"

namespace quire::runner::models {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

size_t RoundUp(size_t value, size_t to) { return (value + to - 1) / to * to; }

// Panels, or blocks of floats.
size_t UnitsOf(const kernels::Matrix& matrix) {
  return kernels::IsFloat(matrix.type) ? kernels::FloatBlockCount(matrix.out)
                                       : kernels::PanelCount(matrix.out);
}

void PackUnit(const kernels::Matrix& m, size_t unit, std::byte* to) {
  if (kernels::IsFloat(m.type)) {
    const size_t bytes = kernels::FloatPanelBytes(m.type, 1, m.in);
    return kernels::FillFloatBlocks(m.data, m.type, m.out, m.in, unit, unit + 1, to + unit * bytes);
  }
  const size_t bytes = kernels::PanelBytes(kernels::PanelFormatOf(m.type), m.in);
  kernels::FillPanelRange(m.data, m.type, m.out, m.in, unit, unit + 1, to + unit * bytes);
}

}  // namespace

size_t PackedBytes(const kernels::Matrix& matrix) {
  const size_t bytes = kernels::IsFloat(matrix.type)
                           ? kernels::FloatPanelBytes(matrix.type, matrix.out, matrix.in)
                           : kernels::PanelCount(matrix.out) *
                                 kernels::PanelBytes(kernels::PanelFormatOf(matrix.type), matrix.in);
  return RoundUp(bytes, kPanelAlignment);
}

void Pack(ThreadPool& pool, const kernels::Matrix& matrix, std::byte* to) {
  pool.ParallelFor(UnitsOf(matrix), [&](size_t unit) { PackUnit(matrix, unit, to); });
}

void PackOnEachNode(ThreadPool& pool, const kernels::Matrix& matrix, std::byte* to, size_t stride) {
  pool.OnEachNode(UnitsOf(matrix),
                  [&](size_t node, size_t unit) { PackUnit(matrix, unit, to + node * stride); });
}

size_t PanelMemory::Rounded(size_t bytes) { return RoundUp(bytes, kHugePage); }

PanelMemory::PanelMemory(size_t bytes) {
  const size_t size = Rounded(bytes);
  if (size == 0) return;
  void* const data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return;
  ::madvise(data, size, MADV_HUGEPAGE);
  data_ = static_cast<std::byte*>(data);
  size_ = size;
}

PanelMemory::PanelMemory(PanelMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

PanelMemory& PanelMemory::operator=(PanelMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

PanelMemory::~PanelMemory() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

}  // namespace quire::runner::models
