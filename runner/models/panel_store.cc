#include "runner/models/panel_store.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "runner/kernels/float_panels.h"
#include "runner/kernels/int8_gemm.h"
#include "runner/kernels/numa_plan.h"
#include "runner/kernels/panels.h"
#include "runner/kernels/streamed_panels.h"

namespace quire::runner::models {
namespace {

constexpr size_t kPieceBytes = size_t{64} << 20;

// Only whole pages: those at the ends may hold what others still read.
void ReleasePages(const std::byte* data, size_t size) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<uintptr_t>(data) + page - 1) / page * page;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + size) / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

int64_t FileBytes(const kernels::Matrix& matrix) {
  return static_cast<int64_t>(weights::RowBytes(matrix.type, matrix.in)) * matrix.out;
}

}  // namespace

std::byte* PanelStore::Allocate(size_t size) {
  if (pieces_.empty() || pieces_.back().copy - pieces_.back().used < size) {
    const size_t copy = PanelMemory::Rounded(std::max(size, kPieceBytes));
    PanelMemory memory(copies_ * copy);
    if (memory.data() == nullptr) return nullptr;
    pieces_.push_back({std::move(memory), copy, 0});
  }
  Piece& piece = pieces_.back();
  std::byte* const at = piece.memory.data() + piece.used;
  piece.used += size;
  return at;
}

kernels::Matrix PanelStore::Stream(kernels::Matrix matrix, WeightUse use, int64_t packed) {
  matrix.streamed = true;
  buffer_bytes_ = std::max(buffer_bytes_, kernels::StreamedBytes(matrix));
  if (use == WeightUse::kExpert) {
    expert_bytes_ += packed;
    expert_streamed_bytes_ += FileBytes(matrix);
    if (!counts_only_) experts_.Add(matrix);
  } else {
    streamed_bytes_ += FileBytes(matrix);
  }
  return matrix;
}

kernels::Matrix PanelStore::Add(ThreadPool& pool, kernels::Matrix matrix, WeightUse use) {
  if (matrix.data == nullptr) return matrix;
  const bool counts = limited() && use != WeightUse::kMade;  // towards the limit
  const auto stays = [&] {
    (counts ? streamed_bytes_ : mapped_bytes_) += FileBytes(matrix);
    return matrix;
  };
  if (!UsesPanels(matrix.type)) return stays();
  const size_t size = PackedBytes(matrix);
  const auto packed = static_cast<int64_t>(copies_ * size);
  if (counts && (use == WeightUse::kExpert || packed > bytes_left())) {
    return Stream(matrix, use, static_cast<int64_t>(size));
  }
  if (!counts_only_) {
    std::byte* const panels = Allocate(size);
    if (panels == nullptr) return stays();
    if (copies_ > 1) {
      matrix.copy_stride = pieces_.back().copy;
      PackOnEachNode(pool, matrix, panels, matrix.copy_stride);
    } else {
      Pack(pool, matrix, panels);
    }
    ReleasePages(matrix.data, static_cast<size_t>(FileBytes(matrix)));
    matrix.panels = panels;
  }
  bytes_ += packed;
  if (counts) {
    limited_bytes_ += packed;
    experts_.set_budget(bytes_left());
  }
  return matrix;
}

int64_t PanelStore::bytes() const {
  return bytes_ + std::min(expert_bytes_, std::max<int64_t>(bytes_left(), 0)) +
         ComputeThreads() * static_cast<int64_t>(buffer_bytes_);
}

int64_t PanelStore::streamed_bytes() const {
  if (expert_bytes_ == 0) return streamed_bytes_;
  const double kept = std::min(
      1.0, static_cast<double>(std::max<int64_t>(bytes_left(), 0)) / static_cast<double>(expert_bytes_));
  return streamed_bytes_ + static_cast<int64_t>((1 - kept) * static_cast<double>(expert_streamed_bytes_));
}

bool UsesPanels(weights::DataType type) {
  if (kernels::IsFloat(type)) return kernels::UsePackedFloat();
  // Without vectors of bytes the float32 kernels are faster.
  return kernels::HasPanels(type) && kernels::BestPanelTarget() > kernels::PanelTarget::kPortable;
}

PanelStore* AttachPanels(std::shared_ptr<const weights::ModelFiles>* files) {
  struct FilesAndPanels {
    explicit FilesAndPanels(std::shared_ptr<const weights::ModelFiles> from)
        : files(std::move(from)), panels(files->metadata_only(), files->panel_bytes_max()) {}
    std::shared_ptr<const weights::ModelFiles> files;
    PanelStore panels;
  };
  const auto owner = std::make_shared<FilesAndPanels>(std::move(*files));
  *files = std::shared_ptr<const weights::ModelFiles>(owner, owner->files.get());
  return &owner->panels;
}

}  // namespace quire::runner::models
