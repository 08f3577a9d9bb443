// Decimal integers in texts.
#pragma once

#include <charconv>
#include <concepts>
#include <optional>
#include <string_view>
#include <system_error>

namespace quire::api {

// The number that the whole text is; nothing where it is none or T does not hold it. No sign but a leading
// '-' of a signed T, no spaces.
template <std::integral T>
std::optional<T> ParseInteger(std::string_view text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return value;
}

}  // namespace quire::api
