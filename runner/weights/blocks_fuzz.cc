// libFuzzer: a type of blocks, and bytes as its blocks and as floats to quantize.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "runner/weights/block_formats.h"
#include "runner/weights/quantize.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quire::runner::weights;
  if (size == 0) return 0;
  const BlockFormat& format = kBlockFormats[data[0] % kBlockFormats.size()];
  const auto* bytes = reinterpret_cast<const std::byte*>(data + 1);
  const size_t blocks = (size - 1) / static_cast<size_t>(format.bytes);
  const auto elements = static_cast<size_t>(format.elements);
  std::vector<float> values(blocks * elements);
  format.dequantize(bytes, blocks, values.data());

  if (!CanQuantizeTo(format.type)) return 0;
  values.assign((size - 1) / sizeof(float) / elements * elements, 0);
  if (!values.empty()) std::memcpy(values.data(), bytes, values.size() * sizeof(float));
  std::vector<std::byte> quantized(RowBytes(format.type, static_cast<int64_t>(values.size())));
  Quantize(format.type, values, quantized.data());
  format.dequantize(quantized.data(), values.size() / elements, values.data());
  if (format.elements == 1) return 0;
  for (const float value : values) {
    if (!std::isfinite(value)) std::abort();
  }
  return 0;
}
