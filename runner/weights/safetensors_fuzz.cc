// libFuzzer: any bytes as a safetensors file.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "runner/weights/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto entries = quire::runner::weights::ParseSafetensors(bytes, "fuzz");
  if (!entries) return 0;
  for (const auto& entry : *entries) {
    const auto* begin = entry.data.data();
    if (begin < bytes.data() || begin + entry.data.size() > bytes.data() + bytes.size()) std::abort();
  }
  return 0;
}
