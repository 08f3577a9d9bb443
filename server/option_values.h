// The values of options: what a text of a flag, a variable or a configuration file means. Each function
// writes `out` only where it returns no error, unless it says otherwise.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/parse_integer.h"
#include "api/ipc/messages.h"

namespace quire::server {

// Why a value is invalid, or nothing.
using ValidationError = std::optional<std::string>;

// Without the spaces and quotes around it.
std::string_view TrimmedValue(std::string_view text);

// An integer from `min` to `max`.
template <class T>
ValidationError SetWhole(T& out, std::string_view text, T min, T max) {
  const auto value = api::ParseInteger<T>(text);
  if (!value || *value < min || *value > max)
    return fmt::format("must be an integer from {} to {}", min, max);
  out = *value;
  return std::nullopt;
}

// Bytes: "100MiB", "512KiB", "1048576". nullopt: not from 1 byte to 1 TiB.
std::optional<int64_t> ParseBytes(std::string_view text);

template <class T>
ValidationError SetBytes(T& out, std::string_view text) {
  const auto value = ParseBytes(text);
  if (!value) return "must be a size from 1 byte to 1 TiB (\"100MiB\")";
  out = static_cast<T>(*value);
  return std::nullopt;
}

// Any duration, also a negative one; `out` may change where the other two return an error.
ValidationError SetDuration(std::chrono::nanoseconds& out, std::string_view text);
ValidationError SetPositiveDuration(std::chrono::nanoseconds& out, std::string_view text);

// A boolean that opens something must be said clearly.
ValidationError SetStrictBool(bool& out, std::string_view text);
ValidationError SetStateType(api::KvType& out, std::string_view text);
// Where a runner's memory comes from: auto, interleave or off.
ValidationError SetNuma(std::string& out, std::string_view text);
// As Ollama reads it: a level, or a boolean of which everything unreadable is true.
ValidationError SetDebug(int32_t& out, std::string_view text);
// Appends the elements between commas that are not empty.
ValidationError SetList(std::vector<std::string>& out, std::string_view text);

// HOME, else the user's entry in the password database, else "/".
std::filesystem::path HomeDirectory();
// "~" and "~/..." are in the home directory.
ValidationError SetPath(std::filesystem::path& out, std::string_view text);
// The contents of a file, at least 16 bytes; `out` changes where there are fewer.
ValidationError SetRedisSecret(std::string& out, std::string_view text);
ValidationError SetCollector(std::string& url, std::string_view text);

}  // namespace quire::server
