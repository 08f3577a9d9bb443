#include "server/option_values.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <utility>

#include "api/base/ascii.h"
#include "api/base/duration.h"

namespace quire::server {

std::string_view TrimmedValue(std::string_view text) { return api::Trimmed(text, " \t\r\n\"'"); }

std::optional<int64_t> ParseBytes(std::string_view text) {
  int shift = 0;
  for (const auto& [suffix, bits] : {std::pair{std::string_view("KiB"), 10},
                                     {std::string_view("MiB"), 20},
                                     {std::string_view("GiB"), 30}}) {
    if (text.ends_with(suffix)) {
      text.remove_suffix(suffix.size());
      shift = bits;
    }
  }
  const auto value = api::ParseInteger<int64_t>(text);
  constexpr int64_t kMax = int64_t{1} << 40;
  if (!value || *value <= 0 || *value > (kMax >> shift)) return std::nullopt;
  return *value << shift;
}

ValidationError SetDuration(std::chrono::nanoseconds& out, std::string_view text) {
  const auto value = api::ParseDurationOrSeconds(text);
  if (!value) return "must be a duration (\"5m\", \"1h30m\", \"1500ms\") or a number of seconds";
  out = *value;
  return std::nullopt;
}

ValidationError SetPositiveDuration(std::chrono::nanoseconds& out, std::string_view text) {
  if (ValidationError error = SetDuration(out, text)) return error;
  if (out <= std::chrono::nanoseconds::zero() || out > std::chrono::hours(24 * 365))
    return "must be more than 0 and at most a year";
  return std::nullopt;
}

ValidationError SetStrictBool(bool& out, std::string_view text) {
  const auto value = api::ParseGoBool(text);
  if (!value) return "must be true or false";
  out = *value;
  return std::nullopt;
}

ValidationError SetStateType(api::KvType& out, std::string_view text) {
  const auto type = api::ParseKvType(api::AsciiLower(text));
  if (!type || *type == api::KvType::kF16 || *type == api::KvType::kI16) return "must be f32, bf16 or q8_0";
  out = *type;
  return std::nullopt;
}

ValidationError SetNuma(std::string& out, std::string_view text) {
  out = api::AsciiLower(text);
  if (out == "auto" || out == "interleave" || out == "replicate" || out == "off") return std::nullopt;
  return "must be auto, interleave, replicate or off";
}

ValidationError SetDebug(int32_t& out, std::string_view text) {
  if (const auto level = api::ParseInteger<int32_t>(text)) {
    out = std::clamp(*level, 0, 2);
  } else {
    out = api::ParseGoBool(text).value_or(true) ? 1 : 0;
  }
  return std::nullopt;
}

ValidationError SetList(std::vector<std::string>& out, std::string_view text) {
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view element = TrimmedValue(text.substr(0, comma));
    if (!element.empty()) out.emplace_back(element);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return std::nullopt;
}

std::filesystem::path HomeDirectory() {
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') return home;
  const passwd* user = ::getpwuid(::getuid());
  return user != nullptr && user->pw_dir != nullptr ? user->pw_dir : "/";
}

ValidationError SetPath(std::filesystem::path& out, std::string_view text) {
  if (text == "~" || text.starts_with("~/")) {
    out = HomeDirectory() / text.substr(std::min<size_t>(2, text.size()));
  } else {
    out = text;
  }
  return std::nullopt;
}

ValidationError SetRedisSecret(std::string& out, std::string_view text) {
  constexpr size_t kBytesMin = 16;
  std::filesystem::path path;
  SetPath(path, text);
  std::ifstream file(path, std::ios::binary);
  out.assign(std::istreambuf_iterator<char>(file), {});
  if (out.size() < kBytesMin) return "the file must have a secret of at least 16 bytes";
  return std::nullopt;
}

namespace {

// A text that begins with `first` or `second`, or nothing. `kind`: what it is.
ValidationError SetAddress(std::string& out, std::string_view text, std::string_view kind,
                           std::string_view first, std::string_view second) {
  const std::string_view trimmed = TrimmedValue(text);
  if (!trimmed.empty() && !trimmed.starts_with(first) && !trimmed.starts_with(second))
    return fmt::format("must be {} that begins with {} or {}", kind, first, second);
  out = trimmed;
  return std::nullopt;
}

}  // namespace

ValidationError SetCollector(std::string& url, std::string_view text) {
  return SetAddress(url, text, "a URL", "http://", "https://");
}

}  // namespace quire::server
