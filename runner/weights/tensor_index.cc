#include "runner/weights/tensor_index.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace quire::runner::weights {

TensorIndex::TensorIndex(std::vector<Tensor> tensors)
    : tensors_(std::move(tensors)), by_name_(tensors_.size()) {
  std::iota(by_name_.begin(), by_name_.end(), size_t{0});
  std::ranges::sort(by_name_, {}, [this](size_t i) -> const std::string& { return tensors_[i].name; });
}

const Tensor* TensorIndex::Find(std::string_view name) const {
  const auto name_of = [this](size_t i) { return std::string_view(tensors_[i].name); };
  const auto found = std::ranges::lower_bound(by_name_, name, {}, name_of);
  if (found == by_name_.end() || name_of(*found) != name) return nullptr;
  return &tensors_[*found];
}

}  // namespace quire::runner::weights
