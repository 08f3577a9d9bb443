// Vectors as text in JSON replies. They are most of a reply, so they are written as they are rather than
// through a tree of numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace quire::api {

// How a reply shows a vector.
enum class VectorType : uint8_t {
  kFloat,
  kBase64,   // of little-endian floats
  kBinary,   // signs, 8 in a byte, the byte less 128
  kUbinary,  // signs, 8 in a byte
};

// "float", "base64", "binary", "ubinary", as requests and replies name them. Nothing for another name.
std::optional<VectorType> VectorTypeOf(std::string_view name);
std::string_view VectorTypeName(VectorType type);

// A JSON array: of each number the fewest digits that give the same float.
void AppendNumbers(std::string& out, std::span<const float> vector);

// A JSON string: base64 of the little-endian floats.
void AppendBase64(std::string& out, std::span<const float> vector);

// A JSON array of a byte for each 8 numbers, the first in the highest bit, 1 where a number is above 0;
// missing ones count as 0. With `shifted` the bytes are 128 less.
void AppendSigns(std::string& out, std::span<const float> vector, bool shifted);

void AppendVector(std::string& out, std::span<const float> vector, VectorType type);

}  // namespace quire::api
