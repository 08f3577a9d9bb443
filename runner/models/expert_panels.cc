#include "runner/models/expert_panels.h"

#include <algorithm>
#include <utility>

namespace quire::runner::models {
namespace {

// Uses of a matrix, on average, after which all counts are halved.
constexpr uint64_t kUsesRemembered = 64;

}  // namespace

void ExpertPanels::Add(const kernels::Matrix& matrix) {
  const size_t bytes = PackedBytes(matrix);
  auto found = std::ranges::find(classes_, bytes, &SizeClass::bytes);
  if (found == classes_.end()) {
    SizeClass made;
    made.bytes = bytes;
    classes_.push_back(std::move(made));
    found = classes_.end() - 1;
  }
  ++found->count;
  Expert expert;
  expert.size_class = static_cast<size_t>(found - classes_.begin());
  experts_.emplace(matrix.data, expert);
}

int64_t ExpertPanels::bytes() const {
  int64_t bytes = 0;
  for (const SizeClass& of : classes_) bytes += static_cast<int64_t>(of.count * of.bytes);
  return bytes;
}

int64_t ExpertPanels::slot_bytes() const {
  int64_t bytes = 0;
  for (const SizeClass& of : classes_) bytes += static_cast<int64_t>(of.slots_max * of.bytes);
  return bytes;
}

// Every size gets the same share of its matrices.
void ExpertPanels::MakeSlots() {
  has_slots_ = true;
  const double share = std::min(1.0, static_cast<double>(std::max<int64_t>(budget_, 0)) /
                                         static_cast<double>(std::max<int64_t>(bytes(), 1)));
  for (SizeClass& of : classes_) {
    const auto slots = static_cast<size_t>(share * static_cast<double>(of.count));
    PanelMemory memory(slots * of.bytes);
    if (memory.data() == nullptr) continue;
    of.memory = std::move(memory);
    of.slots_max = slots;
    of.slots.reserve(slots);
  }
}

std::byte* ExpertPanels::ReserveSlot(SizeClass& of, Expert* expert) {
  if (of.slots.size() < of.slots_max) {
    of.slots.push_back(expert);
    return of.memory.data() + (of.slots.size() - 1) * of.bytes;
  }
  // Uses only grow between two scans, so the last minimum is a lower bound: most misses need no scan.
  if (of.slots.empty() || of.least_uses + 1 >= expert->uses) return nullptr;
  Expert** least = nullptr;
  of.least_uses = UINT64_MAX;
  for (Expert*& owner : of.slots) {
    of.least_uses = std::min(of.least_uses, owner->uses);
    if (owner->product != product_ && (least == nullptr || owner->uses < (*least)->uses)) least = &owner;
  }
  if (least == nullptr || (*least)->uses + 1 >= expert->uses) return nullptr;
  return std::exchange(std::exchange(*least, expert)->panels, nullptr);
}

void ExpertPanels::CountUse() {
  if (++uses_ < kUsesRemembered * experts_.size()) return;
  uses_ = 0;
  for (auto& [data, expert] : experts_) expert.uses /= 2;
  for (SizeClass& of : classes_) of.least_uses /= 2;
}

void ExpertPanels::Provide(ThreadPool& pool, std::span<kernels::MatMulPart> parts) {
  if (!has_slots_) MakeSlots();
  ++product_;
  // First all, so that none of them loses its slot to another.
  for (const kernels::MatMulPart& part : parts) {
    const auto found = experts_.find(part.weight.data);
    if (found != experts_.end()) found->second.product = product_;
  }
  for (kernels::MatMulPart& part : parts) {
    const auto found = experts_.find(part.weight.data);
    if (found == experts_.end()) continue;
    Expert& expert = found->second;
    ++expert.uses;
    CountUse();
    if (expert.panels == nullptr) {
      expert.panels = ReserveSlot(classes_[expert.size_class], &expert);
      if (expert.panels != nullptr) {
        Pack(pool, part.weight, expert.panels);
        ++filled_;
      }
    }
    part.weight.panels = expert.panels;
  }
}

}  // namespace quire::runner::models
