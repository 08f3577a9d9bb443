// Bounds on what a template may cost. A template comes with a model and its variables with a request, so
// neither may hang or exhaust the process. Exceeding any of these ends parsing or rendering with an error.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire::runner::jinja {

struct Limits {
  size_t source_bytes_max = size_t{1} << 20;
  int nesting_max = 200;            // of expressions and of blocks in the source
  uint64_t steps_max = 10'000'000;  // nodes evaluated, elements visited, and one per 64 bytes copied
  int depth_max = 1500;       // nodes under evaluation at once, about 1 MiB of stack; a macro call is several
  int value_depth_max = 400;  // lists and dicts inside each other
  size_t output_bytes_max = size_t{64} << 20;
  size_t memory_bytes_max = size_t{64} << 20;  // strings, lists and dicts alive at once, made while rendering
  int64_t range_max = 100'000;                 // elements of one range(), as Jinja's sandbox has it
};

}  // namespace quire::runner::jinja
