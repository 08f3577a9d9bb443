// Memory for weights in panels, and what fills it. Panels are those of kernels/panels.h or, for floats, of
// kernels/float_panels.h.
#pragma once

#include <cstddef>

#include "runner/kernels/matmul.h"
#include "runner/kernels/thread_pool.h"

namespace quire::runner::models {

inline constexpr size_t kPanelAlignment = 64;

// Bytes of the matrix in panels, a multiple of kPanelAlignment. REQUIRES: its type has panels.
size_t PackedBytes(const kernels::Matrix& matrix);

// Writes the matrix's panels. REQUIRES: `to` has PackedBytes(matrix); what they hold is overwritten.
void Pack(ThreadPool& pool, const kernels::Matrix& matrix, std::byte* to);
// The same for every NUMA node of the pool's plan, by its own threads: node n's lie n * stride bytes behind
// `to`. REQUIRES: stride >= PackedBytes(matrix).
void PackOnEachNode(ThreadPool& pool, const kernels::Matrix& matrix, std::byte* to, size_t stride);

// Zeros, in huge pages where the system gives them, taken as they are written. Empty when there is no memory.
class PanelMemory {
 public:
  PanelMemory() = default;
  explicit PanelMemory(size_t bytes);
  PanelMemory(PanelMemory&& other) noexcept;
  PanelMemory& operator=(PanelMemory&& other) noexcept;
  ~PanelMemory();

  // What is mapped for this many bytes.
  static size_t Rounded(size_t bytes);

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace quire::runner::models
