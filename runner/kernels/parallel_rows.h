// Rows in parallel, several to a task.
#pragma once

#include <algorithm>
#include <cstddef>

#include "runner/kernels/thread_pool.h"

namespace quire::runner::kernels {

// visit(row) in parallel for rows of `width` numbers.
template <class Visit>
void ForEachRow(ThreadPool& pool, size_t rows, size_t width, const Visit& visit) {
  constexpr size_t kTaskElements = 16'384;
  const size_t per_task = std::max<size_t>(1, kTaskElements / std::max<size_t>(1, width));
  const size_t tasks = (rows + per_task - 1) / per_task;
  const auto run = [&](size_t task) {
    const size_t end = std::min(rows, (task + 1) * per_task);
    for (size_t row = task * per_task; row < end; ++row) visit(row);
  };
  if (tasks == 1) {
    run(0);
  } else {
    pool.ParallelFor(tasks, run);
  }
}

}  // namespace quire::runner::kernels
