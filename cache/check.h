// For our own bugs only: never on what a caller's input or the environment decides.
#pragma once

namespace quire::cache {

[[noreturn]] void CheckFailed(const char* condition, const char* file, int line);

}  // namespace quire::cache

#define QUIRE_CACHE_CHECK(condition)                                               \
  do {                                                                             \
    if (!(condition)) ::quire::cache::CheckFailed(#condition, __FILE__, __LINE__); \
  } while (false)
