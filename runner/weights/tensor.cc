#include "runner/weights/tensor.h"

namespace quire::runner::weights {

std::string_view Name(DataType type) {
  switch (type) {
    case DataType::kF32:
      return "F32";
    case DataType::kF16:
      return "F16";
    case DataType::kBF16:
      return "BF16";
    case DataType::kQ8_0:
      return "Q8_0";
  }
  return "?";
}

size_t RowBytes(DataType type, int64_t elements) {
  const auto count = static_cast<size_t>(elements);
  switch (type) {
    case DataType::kF32:
      return count * 4;
    case DataType::kF16:
    case DataType::kBF16:
      return count * 2;
    case DataType::kQ8_0:
      return count / 32 * 34;
  }
  return 0;
}

int64_t Tensor::elements() const {
  int64_t product = 1;
  for (const int64_t dimension : shape) product *= dimension;
  return product;
}

}  // namespace quire::runner::weights
