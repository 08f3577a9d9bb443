// libFuzzer: any bytes as a GGUF file, which is then brought into the spelling that is read here. What comes
// of it is as sound as what was parsed, and needs no further repair of a tensor.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>

#include "runner/weights/dialects/repair_gguf.h"

namespace {

using quire::runner::weights::GgufContents;

void CheckTensors(const GgufContents& contents) {
  std::set<std::string> names;
  for (const auto& tensor : contents.tensors) {
    if (!names.insert(tensor.name).second) std::abort();
    if (tensor.data.size() != static_cast<size_t>(tensor.rows()) * RowBytes(tensor.type, tensor.columns())) {
      std::abort();
    }
    // The sanitizers see whether the last byte is there.
    if (!tensor.data.empty() && *const_cast<const volatile std::byte*>(&tensor.data.back()) == std::byte{})
      continue;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  auto contents = quire::runner::weights::ParseGguf(bytes, "fuzz");
  if (!contents) return 0;
  const size_t tensors = contents->tensors.size();
  const auto repairs = quire::runner::weights::RepairGguf(*contents, "fuzz");
  if (!repairs) return 0;
  if (contents->tensors.size() != tensors) std::abort();
  CheckTensors(*contents);
  return 0;
}
