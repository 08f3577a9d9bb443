// Tensors of a model by name.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "runner/weights/tensor.h"

namespace quire::runner::weights {

// Owns the tensors. Immutable; any thread. REQUIRES: no name occurs twice.
// Sorted rather than hashed: names come from the file, and a file can be made so that all its names collide.
class TensorIndex {
 public:
  explicit TensorIndex(std::vector<Tensor> tensors);

  const std::vector<Tensor>& all() const { return tensors_; }
  const Tensor* Find(std::string_view name) const;  // null when absent

 private:
  std::vector<Tensor> tensors_;
  std::vector<size_t> by_name_;
};

}  // namespace quire::runner::weights
