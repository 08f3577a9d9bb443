// Reading untrusted JSON and MessagePack into Json values with bounded depth and size.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "api/base/error.h"
#include "api/json/type.h"

namespace quire::api {

inline constexpr size_t kJsonDepthMax = 2000;  // nested arrays and objects
inline constexpr size_t kJsonValuesMax = size_t{8}
                                         << 20;  // values and keys; bounds memory to some hundred MiB

// Text that is not valid UTF-8, and escapes of lone surrogates, are read as U+FFFD. In an object that repeats
// a key the last value wins. An integer that no 64 bits hold becomes a double, but in the values of a
// schema's "const" and "enum": there DumpJson() writes it as it was written. Errors: kInvalidArgument naming
// the byte offset; kTooLarge for too many values.
Result<Json> ReadJson(std::string_view text);

// The memory of the value that ReadJson() makes of a text, at its peak; of a text that it refuses, up to
// where it does.
struct JsonMemory {
  size_t texts = 0;    // what strings have beside their objects, which can be moved on
  size_t objects = 0;  // all values, keys and lists
};
JsonMemory MeasureJson(std::string_view text);

// Exactly one MessagePack value of at most `values_max` values and keys. Extension types are refused. Strings
// are not checked for UTF-8.
Result<Json> ReadMessagePack(std::string_view bytes, size_t values_max = kJsonValuesMax);

// Never throws: bytes that are not UTF-8 become U+FFFD.
std::string DumpJson(const Json& value);

}  // namespace quire::api
