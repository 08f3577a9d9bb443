#include "runner/weights/text.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <iterator>

namespace quire::runner::weights {

bool IsUtf8(std::string_view text) {
  constexpr size_t kStepMax = 8;  // longer than any sequence: keeps lengths inside utf8proc's signed type
  const auto* at = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  size_t left = text.size();
  while (left > 0) {
    if (*at < 0x80) {
      ++at;
      --left;
      continue;
    }
    utf8proc_int32_t code = 0;
    const auto length = utf8proc_iterate(at, static_cast<utf8proc_ssize_t>(std::min(left, kStepMax)), &code);
    if (length <= 0) return false;
    at += length;
    left -= static_cast<size_t>(length);
  }
  return true;
}

std::string Quoted(std::string_view text) {
  constexpr size_t kShownBytesMax = 80;
  std::string shown = "\"";
  for (const char c : text.substr(0, kShownBytesMax)) {
    if (c >= 0x20 && c < 0x7f && c != '"' && c != '\\') {
      shown.push_back(c);
    } else {
      fmt::format_to(std::back_inserter(shown), "\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  shown += text.size() > kShownBytesMax ? "\"..." : "\"";
  return shown;
}

std::string_view StandIn(std::string_view file) {
  if (file.empty()) return "empty: the download may have failed";
  if (file.starts_with("version https://git-lfs.github.com/")) {
    return "a Git LFS pointer, not the file itself: fetch it with git lfs pull";
  }
  const std::string_view text = file.substr(std::min(file.find_first_not_of(" \t\r\n"), file.size()));
  if (text.starts_with("<!DOCTYPE") || text.starts_with("<!doctype") || text.starts_with("<html")) {
    return "a web page, not the file itself: the download requires a different URL or a login";
  }
  return {};
}

}  // namespace quire::runner::weights
