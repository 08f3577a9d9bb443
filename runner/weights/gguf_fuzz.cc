// libFuzzer: any bytes as a GGUF file.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <span>

#include "runner/weights/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto contents = quire::runner::weights::ParseGguf(bytes, "fuzz");
  if (!contents) return 0;
  for (const auto& tensor : contents->tensors) {
    if (tensor.data.size() != static_cast<size_t>(tensor.rows()) * RowBytes(tensor.type, tensor.columns())) {
      std::abort();
    }
    const auto* begin = tensor.data.data();
    if (begin < bytes.data() || begin + tensor.data.size() > bytes.data() + bytes.size()) std::abort();
  }
  return 0;
}
