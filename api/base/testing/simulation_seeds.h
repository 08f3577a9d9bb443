// The seeds of a simulation: QUIRE_SIMULATION_SEEDS of them, from QUIRE_SIMULATION_FIRST on.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace quire::api::test {

inline uint64_t NumberFromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// Calls run(seed) for each until it returns false. Says how far it is where there are many.
template <class Run>
void ForEachSimulationSeed(uint64_t by_default, Run&& run) {
  const uint64_t first = NumberFromEnvironment("QUIRE_SIMULATION_FIRST", 1);
  const uint64_t count = NumberFromEnvironment("QUIRE_SIMULATION_SEEDS", by_default);
  for (uint64_t seed = first; seed < first + count; ++seed) {
    if (!run(seed)) return;
    if (count > 10'000 && (seed - first) % 10'000 == 9'999)
      fmt::print(stderr, "{} seeds\n", seed - first + 1);
  }
}

}  // namespace quire::api::test
