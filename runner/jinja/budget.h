// The use of one rendering's Limits; exceeding one ends the rendering. Steps also count as work
// (runner/work).
//
// Inside this folder a failing render throws RenderError; Template::Render is the only place that catches it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "runner/jinja/limits.h"
#include "runner/work/work_budget.h"

namespace quire::runner::jinja {

struct RenderError {
  std::string message;
  bool raised_by_template = false;  // raise_exception(): the message is the template's own and stands alone
};

[[noreturn]] void Raise(std::string message);

// Owned by one rendering, used by its thread only.
class Budget {
 public:
  explicit Budget(const Limits& limits) : limits_(limits) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  const Limits& limits() const { return limits_; }

  void Step(uint64_t count = 1) {
    CountWork(count);
    steps_ += count;
    if (steps_ > limits_.steps_max) FailSteps();
  }
  // The work of reading or copying this many bytes.
  void StepBytes(size_t bytes) { Step(1 + bytes / 64); }

  void Reserve(size_t bytes) {
    if (bytes > limits_.memory_bytes_max || live_bytes_ > limits_.memory_bytes_max - bytes) FailMemory();
    live_bytes_ += bytes;
  }
  void Release(size_t bytes) { live_bytes_ -= bytes; }

  void Enter() {
    if (++depth_ > limits_.depth_max) FailDepth();
  }
  void Exit() { --depth_; }

  uint64_t steps() const { return steps_; }

 private:
  [[noreturn]] void FailSteps() const;
  [[noreturn]] void FailMemory() const;
  [[noreturn]] void FailDepth();

  Limits limits_;
  uint64_t steps_ = 0;
  size_t live_bytes_ = 0;
  int depth_ = 0;
};

// Counts one level of nesting while it lives.
class DepthGuard {
 public:
  explicit DepthGuard(Budget& budget) : budget_(budget) { budget_.Enter(); }
  ~DepthGuard() { budget_.Exit(); }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  Budget& budget_;
};

// Memory reserved from a budget, released on destruction. Empty for values made outside a rendering.
// A charged value must not outlive its budget.
class Charge {
 public:
  Charge() = default;
  Charge(Budget& budget, size_t bytes) : budget_(&budget), bytes_(bytes) { budget.Reserve(bytes); }
  Charge(Charge&& other) noexcept
      : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Charge& operator=(Charge&& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Charge() {
    if (budget_ != nullptr) budget_->Release(bytes_);
  }
  // REQUIRES: made with a budget.
  void Grow(size_t bytes) {
    budget_->Reserve(bytes);
    bytes_ += bytes;
  }

 private:
  Budget* budget_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace quire::runner::jinja
