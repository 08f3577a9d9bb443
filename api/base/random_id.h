// Random numbers and names from the system's generator. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace quire::api {

uint64_t RandomBits();

// `prefix` and letters and digits that no other id has: 9 are 53 bits, 24 are 142.
std::string RandomId(std::string_view prefix = {}, size_t letters = 24);

}  // namespace quire::api
