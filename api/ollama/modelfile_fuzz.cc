// Any bytes as a Modelfile; what is read is written and read again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "api/ollama/modelfile_parse.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace modelfile = quire::api::modelfile;
  const auto parsed = modelfile::Parse({reinterpret_cast<const char*>(data), size});
  if (!parsed) return 0;
  const auto again = modelfile::Parse(modelfile::Write(*parsed));
  if (!again || *again != *parsed) std::abort();
  return 0;
}
