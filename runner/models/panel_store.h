// The memory of a model's weights in panels (kernels/panels.h, kernels/float_panels.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "runner/kernels/matmul.h"
#include "runner/kernels/thread_pool.h"
#include "runner/models/expert_panels.h"
#include "runner/models/panel_memory.h"
#include "runner/weights/model_files.h"

namespace quire::runner::models {

// What a matrix is for, where panels of all matrices do not fit (ModelFiles::panel_bytes_max).
enum class WeightUse : uint8_t {
  kAlways,  // in panels while there is room, in the order of binding, else streamed
  kExpert,  // streamed; products pass ExpertPanels, which have the rest of the room
  kMade,    // of numbers that no file has as they are: in panels in any case
};

// Filled while a model loads; afterwards only the experts' panels change. Memory is mapped in large pieces,
// with huge pages where the system gives them, and goes with the store. One that only counts takes none and
// fills nothing. Where NumaPlan replicates weights, all panels but those of ExpertPanels lie once on each
// node, and count as often.
class PanelStore {
 public:
  // `bytes_max`: of all panels but those of WeightUse::kMade, or weights::kNoPanelLimit.
  PanelStore(bool counts_only, int64_t bytes_max) : counts_only_(counts_only), bytes_max_(bytes_max) {
    experts_.set_budget(bytes_max);
  }
  PanelStore(const PanelStore&) = delete;
  PanelStore& operator=(const PanelStore&) = delete;

  // The matrix with panels, if its type has them and there is memory: it keeps working without. Pages of its
  // file that were read are given back to the system's cache.
  kernels::Matrix Add(ThreadPool& pool, kernels::Matrix matrix, WeightUse use);

  // Memory of a matrix that was added as kMade and has no panels: mapped_bytes() counts it.
  void Store(std::unique_ptr<std::byte[]> memory) { made_.push_back(std::move(memory)); }

  // Panels, and what threads fill for streamed matrices.
  int64_t bytes() const;
  // Bytes of the matrices that were added but stay in their file's layout: products read them in place. Where
  // panels have a limit, these count as streamed.
  int64_t mapped_bytes() const { return mapped_bytes_; }
  // Bytes in the file of what no panels hold: products read it again each time, from the system's file cache
  // or the disk.
  int64_t streamed_bytes() const;

  // What products of experts pass; null where all experts are in panels.
  ExpertPanels* experts() { return expert_bytes_ > 0 && !counts_only_ ? &experts_ : nullptr; }

 private:
  struct Piece {
    PanelMemory memory;
    size_t copy = 0;  // bytes of one node's copy
    size_t used = 0;  // of each
  };

  bool limited() const { return bytes_max_ != weights::kNoPanelLimit; }
  int64_t bytes_left() const { return bytes_max_ - limited_bytes_; }  // for experts
  kernels::Matrix Stream(kernels::Matrix matrix, WeightUse use, int64_t packed);
  // Zeros, aligned to 64 bytes, in the last piece, which has as many for each copy; null when there is no
  // memory.
  std::byte* Allocate(size_t size);

  const size_t copies_ = CurrentNumaPlan().weight_copies();
  const bool counts_only_;
  const int64_t bytes_max_;
  std::vector<Piece> pieces_;
  std::vector<std::unique_ptr<std::byte[]>> made_;
  ExpertPanels experts_;
  int64_t bytes_ = 0;          // of panels without the experts'
  int64_t limited_bytes_ = 0;  // of them, what counts towards bytes_max_
  int64_t mapped_bytes_ = 0;
  int64_t streamed_bytes_ = 0;                            // in the file, without experts
  int64_t expert_bytes_ = 0, expert_streamed_bytes_ = 0;  // of all streamed experts: in panels, in the file
  size_t buffer_bytes_ = 0;                               // of a thread, for streamed matrices
};

// Whether matrices of this type are put into panels here.
bool UsesPanels(weights::DataType type);

// A store that lives as long as anybody holds `files`. It only counts for metadata-only files.
PanelStore* AttachPanels(std::shared_ptr<const weights::ModelFiles>* files);

}  // namespace quire::runner::models
