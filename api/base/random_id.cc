#include "api/base/random_id.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <limits>
#include <random>
#include <system_error>

namespace quire::api {
namespace {

// std::random_device asks the processor what it has each time one is made. In a virtual machine that takes
// longer than all other work for a request that is rejected.
class SystemGenerator {
 public:
  using result_type = uint64_t;
  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return std::numeric_limits<uint64_t>::max(); }

  uint64_t operator()() {
    if (next_ == numbers_.size()) Fill();
    return numbers_[next_++];
  }

 private:
  void Fill() {
    if (::getentropy(numbers_.data(), sizeof(numbers_)) != 0) {
      throw std::system_error(errno, std::generic_category(), "the system has no random numbers");
    }
    next_ = 0;
  }

  std::array<uint64_t, 32> numbers_{};  // as many bytes as one call gives
  size_t next_ = numbers_.size();
};

}  // namespace

uint64_t RandomBits() { return SystemGenerator()(); }

std::string RandomId(std::string_view prefix, size_t letters) {
  static constexpr std::string_view kLetters =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  SystemGenerator generator;
  std::uniform_int_distribution<size_t> letter(0, kLetters.size() - 1);
  std::string id(prefix);
  for (size_t i = 0; i < letters; ++i) id += kLetters[letter(generator)];
  return id;
}

}  // namespace quire::api
