#include "server/routes/private_paths.h"

#include <algorithm>

#include "api/base/model_name.h"

namespace quire::server {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kInPaths =
    "/._-+@";  // beside letters and digits; ':' where a letter or digit follows

std::string WithoutSlash(const fs::path& folder) {
  std::string text = folder.string();
  while (text.size() > 1 && text.ends_with('/')) text.pop_back();
  return text;
}

bool IsWord(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

// Whether what follows this character goes on with the same path.
bool InsidePath(char c) { return IsWord(c) || kInPaths.find(c) != std::string_view::npos; }

// Bytes of a path at the begin of `text`, as the store names files. A colon behind it belongs to the message.
size_t PathLength(std::string_view text) {
  size_t length = 0;
  while (length < text.size()) {
    const char c = text[length];
    const bool port = c == ':' && length + 1 < text.size() && IsWord(text[length + 1]);
    if (!IsWord(c) && !port && kInPaths.find(c) == std::string_view::npos) break;
    ++length;
  }
  while (length > 0 && text[length - 1] == '.') --length;
  return length;
}

// "model NAME" for manifests/HOST/NAMESPACE/MODEL/TAG, the file name of anything else.
std::string PublicName(const fs::path& below) {
  const std::vector<fs::path> parts(below.begin(), below.end());
  if (parts.size() == 5 && parts[0] == "manifests") {
    const api::ModelName name{parts[1].string(), parts[2].string(), parts[3].string(), parts[4].string()};
    return "model " + name.Display();
  }
  return below.filename().string();
}

}  // namespace

PrivatePaths::PrivatePaths(const fs::path& store, const std::vector<fs::path>& folders)
    : store_(WithoutSlash(store)) {
  for (const fs::path& folder : folders) folders_.push_back(WithoutSlash(folder));
  folders_.push_back(store_);
  std::erase_if(folders_, [](const std::string& folder) { return folder.size() < 2; });
  std::ranges::sort(folders_, std::ranges::greater(), &std::string::size);  // the innermost first
}

PrivatePaths::Replacement PrivatePaths::Find(std::string_view text) const {
  for (const std::string& folder : folders_) {
    if (!text.starts_with(folder)) continue;
    const size_t below = PathLength(text.substr(folder.size()));
    if (below > 0 && text[folder.size()] != '/')
      continue;  // another folder, whose name begins like this one's
    std::string_view rest = text.substr(folder.size(), below);
    while (rest.starts_with('/')) rest.remove_prefix(1);
    while (rest.ends_with('/')) rest.remove_suffix(1);
    const std::string whole = folder == store_ ? "the model store" : fs::path(folder).filename().string();
    return {folder.size() + below, rest.empty() ? whole : PublicName(rest)};
  }
  return {};
}

std::string PrivatePaths::Hide(std::string_view message) const {
  std::string shown;
  bool inside = false;  // a word, in which no path begins
  while (!message.empty()) {
    const Replacement found = inside ? Replacement() : Find(message);
    inside = found.length == 0 && InsidePath(message.front());
    if (found.length > 0) {
      shown += found.text;
    } else {
      shown += message.front();
    }
    message.remove_prefix(std::max<size_t>(found.length, 1));
  }
  return shown;
}

std::string PathShownTo(bool admin, const std::filesystem::path& file) {
  return admin ? file.string() : file.filename().string();
}

}  // namespace quire::server
