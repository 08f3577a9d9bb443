#include "runner/models/panel_memory.h"

#include <sys/mman.h>

#include <utility>

#include "runner/kernels/float_panels.h"
#include "runner/kernels/panels.h"

namespace quire::runner::models {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

size_t RoundUp(size_t value, size_t to) { return (value + to - 1) / to * to; }

}  // namespace

size_t PackedBytes(const kernels::Matrix& matrix) {
  const size_t bytes = kernels::IsFloat(matrix.type)
                           ? kernels::FloatPanelBytes(matrix.type, matrix.out, matrix.in)
                           : kernels::PanelCount(matrix.out) *
                                 kernels::PanelBytes(kernels::PanelFormatOf(matrix.type), matrix.in);
  return RoundUp(bytes, kPanelAlignment);
}

void Pack(ThreadPool& pool, const kernels::Matrix& matrix, std::byte* to) {
  if (!kernels::IsFloat(matrix.type)) {
    return kernels::FillPanels(pool, matrix.data, matrix.type, matrix.out, matrix.in, to);
  }
  const size_t block_bytes = kernels::FloatPanelBytes(matrix.type, 1, matrix.in);
  pool.ParallelFor(kernels::FloatBlockCount(matrix.out), [&](size_t block) {
    kernels::FillFloatBlocks(matrix.data, matrix.type, matrix.out, matrix.in, block, block + 1,
                             to + block * block_bytes);
  });
}

PanelMemory::PanelMemory(size_t bytes) {
  const size_t size = RoundUp(bytes, kHugePage);
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
