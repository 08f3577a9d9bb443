#include "runner/weights/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace quire::runner::weights {

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
