// Experts that stay in their file, the most used of them in panels within a budget.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "runner/kernels/matmul.h"
#include "runner/kernels/thread_pool.h"
#include "runner/models/panel_memory.h"

namespace quire::runner::models {

// Matrices are added while a model loads. Afterwards, on the engine's thread only, every product of experts
// passes here. Memory is divided into slots of equal size for matrices of equal size. A matrix without a slot
// gets that of the least used matrix once it has been used more often by two, so that a prompt that runs
// through all experts in turn replaces none. Counts are halved from time to time: old use is forgotten.
class ExpertPanels {
 public:
  // For panels of all matrices together. REQUIRES: no product has passed yet.
  void set_budget(int64_t bytes) { budget_ = bytes; }
  // REQUIRES: matrix.streamed; its data is read for as long as this lives, and no other matrix begins there.
  void Add(const kernels::Matrix& matrix);

  // Counts a use of each part's matrix, and gives those that have a slot their panels, valid until the next
  // call. Parts with matrices that were not added are left alone.
  void Provide(ThreadPool& pool, std::span<kernels::MatMulPart> parts);

  int64_t bytes() const;  // of all matrices in panels
  // The size of the slots. Zero before the first product.
  int64_t slot_bytes() const;
  // Panels that were written, of all uses.
  uint64_t filled() const { return filled_; }

 private:
  struct Expert {
    size_t size_class = 0;
    uint64_t uses = 0;
    uint64_t product = 0;  // the last one that used it
    std::byte* panels = nullptr;
  };
  struct SizeClass {
    size_t bytes = 0;  // of a matrix in panels
    size_t count = 0;
    PanelMemory memory;
    std::vector<Expert*> slots;  // who has each; no more than there is memory for
    size_t slots_max = 0;
    uint64_t least_uses = 0;  // no matrix with a slot has fewer
  };

  void MakeSlots();
  // A slot for `expert`, which has none: null if it is to have none.
  std::byte* ReserveSlot(SizeClass& of, Expert* expert);
  void CountUse();

  int64_t budget_ = 0;
  std::unordered_map<const std::byte*, Expert> experts_;  // by the matrix's data
  std::vector<SizeClass> classes_;
  bool has_slots_ = false;
  uint64_t product_ = 0, uses_ = 0, filled_ = 0;
};

}  // namespace quire::runner::models
