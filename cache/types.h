#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "api/base/ids.h"

namespace quire::cache {

using api::TokenId;
using Position = int64_t;  // index of a token in its sequence; ranges are half-open [a, b)

// kI16: vectors of int16 numbers with one float32 scale (layout.h).
enum class ElementType : uint8_t { kF32, kF16, kBF16, kQ8_0, kI16 };

enum class ErrorCode : uint8_t {
  kOutOfPages,   // message names capacity, used and demand; nothing changed
  kOutOfSlots,   // the same
  kUnsupported,  // the layer mix cannot do it (rewind of recurrent state, ...)
  kInvalid,      // a position or length outside the sequence
  kOutOfMemory,  // the C++ heap has none for the books of the cache; nothing changed
};

struct Error {
  ErrorCode code;
  std::string message;
};

// For maps from strings that are asked for views.
struct TransparentHash {
  using is_transparent = void;
  size_t operator()(std::string_view key) const { return std::hash<std::string_view>()(key); }
};

template <class T>
using Result = std::expected<T, Error>;

inline std::unexpected<Error> Fail(ErrorCode code, std::string message) {
  return std::unexpected(Error{code, std::move(message)});
}

// Without memory: the message fits into the string.
inline std::unexpected<Error> NoMemory() { return Fail(ErrorCode::kOutOfMemory, "out of memory"); }

}  // namespace quire::cache
