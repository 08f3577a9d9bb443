// libFuzzer over the operations of the random tests: the first byte picks the layer mix, the others every
// decision.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>

#include "cache/testing/model_machine.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  using quire::cache::Choices;
  using quire::cache::Machine;
  Machine machine(data[0] % quire::cache::MachineMixes(), Choices(std::span(data + 1, size - 1)));
  while (!machine.done()) {
    const std::string wrong = machine.Step();
    if (wrong.empty()) continue;
    std::fprintf(stderr, "%s: %s\n", machine.last_operation(), wrong.c_str());
    std::abort();
  }
  return 0;
}
