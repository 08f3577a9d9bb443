#include "runner/models/panel_store.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "runner/kernels/float_panels.h"
#include "runner/kernels/int8_gemm.h"
#include "runner/kernels/panels.h"

namespace quire::runner::models {
namespace {

constexpr size_t kPieceBytes = size_t{64} << 20;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kAlignment = 64;

size_t RoundUp(size_t value, size_t to) { return (value + to - 1) / to * to; }

// Bytes of the matrix in panels.
size_t SizeOf(const kernels::Matrix& matrix) {
  if (kernels::IsFloat(matrix.type)) return kernels::FloatPanelBytes(matrix.type, matrix.out, matrix.in);
  return kernels::PanelCount(matrix.out) *
         kernels::PanelBytes(kernels::PanelFormatOf(matrix.type), matrix.in);
}

// Only whole pages: those at the ends may hold what others still read.
void ReleasePages(const std::byte* data, size_t size) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = RoundUp(reinterpret_cast<uintptr_t>(data), page);
  const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + size) / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace

PanelStore::~PanelStore() {
  for (const Piece& piece : pieces_) ::munmap(piece.data, piece.size);
}

std::byte* PanelStore::Allocate(size_t size) {
  size = RoundUp(size, kAlignment);
  if (pieces_.empty() || pieces_.back().size - pieces_.back().used < size) {
    const size_t piece = RoundUp(std::max(size, kPieceBytes), kHugePage);
    void* const data = ::mmap(nullptr, piece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return nullptr;
    ::madvise(data, piece, MADV_HUGEPAGE);
    pieces_.push_back({static_cast<std::byte*>(data), piece, 0});
  }
  Piece& piece = pieces_.back();
  std::byte* const at = piece.data + piece.used;
  piece.used += size;
  bytes_ += static_cast<int64_t>(size);
  return at;
}

kernels::Matrix PanelStore::Add(ThreadPool& pool, kernels::Matrix matrix) {
  if (matrix.data == nullptr) return matrix;
  const size_t mapped = weights::RowBytes(matrix.type, matrix.in) * static_cast<size_t>(matrix.out);
  const auto stays = [&] {
    mapped_bytes_ += static_cast<int64_t>(mapped);
    return matrix;
  };
  if (!UsesPanels(matrix.type)) return stays();
  if (counts_only_) {
    bytes_ += static_cast<int64_t>(RoundUp(SizeOf(matrix), kAlignment));
    return matrix;
  }
  std::byte* const panels = Allocate(SizeOf(matrix));
  if (panels == nullptr) return stays();
  const auto fill = kernels::IsFloat(matrix.type) ? kernels::FillFloatPanels : kernels::FillPanels;
  fill(pool, matrix.data, matrix.type, matrix.out, matrix.in, panels);
  ReleasePages(matrix.data, mapped);
  matrix.panels = panels;
  return matrix;
}

bool UsesPanels(weights::DataType type) {
  if (kernels::IsFloat(type)) return kernels::UsePackedFloat();
  // Without vectors of bytes the float32 kernels are faster.
  return kernels::HasPanels(type) && kernels::BestPanelTarget() > kernels::PanelTarget::kPortable;
}

PanelStore* AttachPanels(std::shared_ptr<const weights::ModelFiles>* files) {
  struct FilesAndPanels {
    explicit FilesAndPanels(std::shared_ptr<const weights::ModelFiles> from)
        : files(std::move(from)), panels(files->metadata_only()) {}
    std::shared_ptr<const weights::ModelFiles> files;
    PanelStore panels;
  };
  const auto owner = std::make_shared<FilesAndPanels>(std::move(*files));
  *files = std::shared_ptr<const weights::ModelFiles>(owner, owner->files.get());
  return &owner->panels;
}

}  // namespace quire::runner::models
