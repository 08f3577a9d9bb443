// The limit of open files, and how many of them connections may take.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire::server {

// Raises the soft limit to the hard one, but not beyond `wanted`, and returns the soft limit then.
uint64_t RaiseOpenFileLimit(uint64_t wanted);

// How many connections may be open at once: at most `configured`, and few enough that an eighth of the files,
// 64 at least and half of them at most, is left for runners, models and the store.
size_t ConnectionLimit(size_t configured, uint64_t open_files);

}  // namespace quire::server
