#include "runner/work/work_budget.h"

#include <algorithm>
#include <ctime>
#include <utility>

namespace quire::runner {
namespace {

using Reason = WorkStopped::Reason;

constinit thread_local WorkBudget* current = nullptr;
constinit thread_local std::atomic<uint64_t>* checks_of_thread = nullptr;
constinit thread_local int64_t limit_left = INT64_MAX;    // units, as of the last check
constinit thread_local int64_t granted = kUnitsPerCheck;  // units_to_check at the last check

void CountSinceLastCheck() {
  if (limit_left != INT64_MAX) limit_left -= granted - units_to_check;
  granted = std::clamp<int64_t>(limit_left, 0, kUnitsPerCheck);
  units_to_check = granted;
}

}  // namespace

std::chrono::nanoseconds WorkBudget::CpuTime() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

WorkBudget::WorkBudget(std::chrono::nanoseconds cpu_time, const std::atomic<bool>& canceled,
                       std::atomic<uint64_t>* checks)
    : deadline_(CpuTime() + cpu_time), canceled_(canceled) {
  current = this;
  checks_of_thread = checks;
}

WorkBudget::~WorkBudget() {
  current = nullptr;
  checks_of_thread = nullptr;
}

WorkBudget::Exempt::Exempt() : budget_(std::exchange(current, nullptr)) {
  CountSinceLastCheck();
  units_left_ = std::exchange(limit_left, INT64_MAX);
  granted = units_to_check = kUnitsPerCheck;
  if (budget_ != nullptr) begin_ = CpuTime();
}

WorkBudget::Exempt::~Exempt() {
  current = budget_;
  limit_left = units_left_;
  granted = units_to_check = std::clamp<int64_t>(limit_left, 0, kUnitsPerCheck);
  if (budget_ != nullptr) budget_->deadline_ += CpuTime() - begin_;
}

WorkLimit::WorkLimit(uint64_t units)
    : outer_left_((CountSinceLastCheck(), std::exchange(limit_left, static_cast<int64_t>(units)))) {
  granted = units_to_check = std::min(limit_left, kUnitsPerCheck);
}

WorkLimit::~WorkLimit() {
  CountSinceLastCheck();
  limit_left = outer_left_;
  granted = units_to_check = std::clamp<int64_t>(limit_left, 0, kUnitsPerCheck);
}

std::optional<Reason> WorkBudget::StopReason() {
  CountSinceLastCheck();
  if (checks_of_thread != nullptr) checks_of_thread->fetch_add(1, std::memory_order_relaxed);
  if (limit_left < 0) return Reason::kUnits;
  if (current == nullptr) return std::nullopt;
  if (current->canceled_.load(std::memory_order_relaxed)) return Reason::kCanceled;
  if (WorkBudget::CpuTime() >= current->deadline_) return Reason::kCpuTime;
  return std::nullopt;
}

void CheckWork() {
  if (const auto reason = WorkBudget::StopReason()) throw WorkStopped{*reason};
}

bool WorkMustStop() { return WorkBudget::StopReason().has_value(); }

}  // namespace quire::runner
