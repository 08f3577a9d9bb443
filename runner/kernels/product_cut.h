// How a product, or other work on outputs and rows, is cut into tasks for the threads of a pool: along its
// outputs, and where these make too few tasks along its rows, too. Who computes an element does not enter its
// bits.
#pragma once

#include <algorithm>
#include <cstddef>

namespace quire::runner::kernels {

// A run [begin, end).
struct CutRange {
  size_t begin = 0, end = 0;
  bool operator==(const CutRange&) const = default;
};

// Tasks [0, tasks()). Those that follow each other read the same weights.
class ProductCut {
 public:
  // Outputs and rows in whatever units a kernel takes together.
  struct Size {
    size_t outs = 0;
    size_t outs_per_task = 1;
    size_t rows = 0;
    size_t least_rows = 1;  // of a task: fewer do not repay reading the weights once more
  };

  ProductCut() = default;  // no tasks
  ProductCut(const Size& size, int threads) : size_(size) {
    out_tasks_ = Parts(size.outs, size.outs_per_task);
    // Two for each thread, so that none waits long for the last.
    const size_t wanted =
        threads < 2 || out_tasks_ == 0 ? 1 : Parts(2 * static_cast<size_t>(threads), out_tasks_);
    const size_t most = std::max<size_t>(size.rows / size.least_rows, 1);
    row_tasks_ = size.rows == 0 ? 0 : std::min(wanted, most);
  }

  size_t tasks() const { return out_tasks_ * row_tasks_; }
  CutRange outs(size_t task) const {
    const size_t begin = task / row_tasks_ * size_.outs_per_task;
    return {begin, std::min(size_.outs, begin + size_.outs_per_task)};
  }
  CutRange rows(size_t task) const {
    const size_t part = task % row_tasks_;
    return {size_.rows * part / row_tasks_, size_.rows * (part + 1) / row_tasks_};
  }

 private:
  static size_t Parts(size_t all, size_t each) { return (all + each - 1) / each; }

  Size size_;
  size_t out_tasks_ = 0, row_tasks_ = 0;
};

}  // namespace quire::runner::kernels
