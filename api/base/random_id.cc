#include "api/base/random_id.h"

#include <random>

namespace quire::api {

uint64_t RandomBits() {
  std::random_device device;
  return std::uniform_int_distribution<uint64_t>()(device);
}

std::string RandomId(std::string_view prefix, size_t letters) {
  static constexpr std::string_view kLetters =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  std::random_device device;
  std::uniform_int_distribution<size_t> letter(0, kLetters.size() - 1);
  std::string id(prefix);
  for (size_t i = 0; i < letters; ++i) id += kLetters[letter(device)];
  return id;
}

}  // namespace quire::api
