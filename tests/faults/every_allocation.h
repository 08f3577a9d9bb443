// SQLite's method within one program: an operation is run again and again, and its first allocation fails,
// then its second, until it gets through.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <new>

#include "tests/faults/fault_control.h"

namespace quire::faults {

// Allocations of this program that are not freed; only where failing_allocator.cc is linked in.
int64_t LiveAllocations();

// How many of the operation's allocations failed. What it does must not fail but by std::bad_alloc or its own
// errors, and must leave nothing allocated. `check` runs after each run of it, without failures.
inline int64_t FailEveryAllocation(
    const std::function<void()>& operation, const std::function<void()>& check = [] {}) {
  FaultControl& faults = Faults();
  operation();  // what is made once stays
  for (int64_t point = 1;; ++point) {
    const int64_t live = LiveAllocations();
    const int64_t failed = faults.allocations_failed;
    faults.allocation_countdown = point;
    try {
      operation();
    } catch (const std::bad_alloc&) {
      // The caller's business.
    }
    faults.allocation_countdown = 0;
    const int64_t left = LiveAllocations() - live;
    EXPECT_EQ(left, 0) << "allocation " << point << " failed, and others were not freed";
    check();
    if (faults.allocations_failed == failed || testing::Test::HasFailure()) return point - 1;
  }
}

}  // namespace quire::faults
