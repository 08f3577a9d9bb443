#include "runner/weights/tensor.h"

#include "runner/weights/block_formats.h"

namespace quire::runner::weights {

std::string_view Name(DataType type) { return FormatOf(type).name; }

int64_t BlockElements(DataType type) { return FormatOf(type).elements; }

size_t RowBytes(DataType type, int64_t elements) {
  const BlockFormat& format = FormatOf(type);
  return static_cast<size_t>(elements / format.elements) * static_cast<size_t>(format.bytes);
}

int64_t Tensor::elements() const {
  int64_t product = 1;
  for (const int64_t dimension : shape) product *= dimension;
  return product;
}

}  // namespace quire::runner::weights
