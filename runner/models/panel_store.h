// The memory of a model's weights in panels (kernels/panels.h, kernels/float_panels.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runner/kernels/matmul.h"
#include "runner/kernels/thread_pool.h"
#include "runner/weights/model_files.h"

namespace quire::runner::models {

// Filled while a model loads, read-only afterwards. Memory is mapped in large pieces, with huge pages where
// the system gives them, and goes with the store. One that only counts takes none and fills nothing.
class PanelStore {
 public:
  explicit PanelStore(bool counts_only) : counts_only_(counts_only) {}
  PanelStore(const PanelStore&) = delete;
  PanelStore& operator=(const PanelStore&) = delete;
  ~PanelStore();

  // The matrix with panels, if its type has them and there is memory: it keeps working without. Pages of its
  // file that were read are given back to the system's cache.
  kernels::Matrix Add(ThreadPool& pool, kernels::Matrix matrix);

  int64_t bytes() const { return bytes_; }
  // Bytes of the matrices that were added but stay in their file's layout.
  int64_t mapped_bytes() const { return mapped_bytes_; }

 private:
  struct Piece {
    std::byte* data = nullptr;
    size_t size = 0, used = 0;
  };

  std::byte* Allocate(size_t size);  // zeros, aligned to 64 bytes; null when there is no memory

  const bool counts_only_;
  std::vector<Piece> pieces_;
  int64_t bytes_ = 0;
  int64_t mapped_bytes_ = 0;
};

// Whether matrices of this type are put into panels here.
bool UsesPanels(weights::DataType type);

// A store that lives as long as anybody holds `files`. It only counts for metadata-only files.
PanelStore* AttachPanels(std::shared_ptr<const weights::ModelFiles>* files);

}  // namespace quire::runner::models
