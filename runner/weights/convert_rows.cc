#include "runner/weights/convert_rows.h"

#include <algorithm>
#include <thread>
#include <vector>

#include "runner/weights/block_formats.h"
#include "runner/weights/quantize.h"

namespace quire::runner::weights {

void ConvertRows(const Tensor& tensor, DataType to, int64_t first, int64_t rows, int threads,
                 std::span<std::byte> out) {
  const int64_t columns = tensor.columns();
  const size_t from_bytes = RowBytes(tensor.type, columns), to_bytes = RowBytes(to, columns);
  const auto convert = [&](int64_t begin, int64_t end) {
    std::vector<float> row(static_cast<size_t>(columns));
    for (int64_t i = begin; i < end; ++i) {
      Dequantize(tensor.type, tensor.data.data() + static_cast<size_t>(first + i) * from_bytes, columns,
                 row.data());
      Quantize(to, row, out.data() + static_cast<size_t>(i) * to_bytes);
    }
  };
  std::vector<std::jthread> others;
  const int64_t share = (rows + threads - 1) / threads;
  for (int64_t begin = share; begin < rows; begin += share) {
    others.emplace_back(convert, begin, std::min(rows, begin + share));
  }
  convert(0, std::min(rows, share));
}

}  // namespace quire::runner::weights
