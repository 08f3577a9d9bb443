#include "server/cli/image_paths.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "api/base/ascii.h"

namespace quire::cli {
namespace {

constexpr std::string_view kFileUrl = "file://";

// A part of the prompt that may be a path.
struct Candidate {
  size_t end = 0;  // in the prompt
  std::string path;
  bool certain = false;  // nobody would write a text like this
};

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\n'; }

// Where an image's extension ends that begins at `at`; 0: none does. A longer word is none.
size_t EndOfExtension(std::string_view text, size_t at) {
  for (const std::string_view extension : {".png", ".jpg", ".jpeg", ".webp"}) {
    const size_t end = at + extension.size();
    if (!api::EqualIgnoringCase(text.substr(at, extension.size()), extension)) continue;
    if (end == text.size() || !(api::IsAsciiAlnum(text[end]) || text[end] == '_')) return end;
  }
  return 0;
}

std::string Unescaped(std::string_view text) {
  std::string path;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size()) ++i;
    path += text[i];
  }
  return path;
}

std::string PercentDecoded(std::string_view text) {
  std::string path;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool coded = text[i] == '%' && i + 2 < text.size() && api::HexValue(text[i + 1]) >= 0 &&
                       api::HexValue(text[i + 2]) >= 0;
    path += coded ? static_cast<char>(api::HexValue(text[i + 1]) * 16 + api::HexValue(text[i + 2])) : text[i];
    if (coded) i += 2;
  }
  return path;
}

// As the file system has it.
std::string PathOf(std::string_view text) {
  if (text.starts_with(kFileUrl)) return PercentDecoded(text.substr(kFileUrl.size()));
  std::string path = Unescaped(text);
  const char* home = std::getenv("HOME");
  return home != nullptr && path.starts_with("~/") ? home + path.substr(1) : path;
}

bool BeginsPath(std::string_view text) {
  constexpr std::array<std::string_view, 5> kBegins = {"/", "./", "../", "~/", kFileUrl};
  return std::ranges::any_of(kBegins, [text](std::string_view begin) { return text.starts_with(begin); });
}

bool IsFile(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

std::optional<Candidate> QuotedAt(std::string_view prompt, size_t at) {
  const size_t close = prompt.find(prompt[at], at + 1);
  if (close == std::string_view::npos) return std::nullopt;
  const std::string_view inside = prompt.substr(at + 1, close - at - 1);
  const size_t dot = inside.rfind('.');
  if (dot == std::string_view::npos || EndOfExtension(inside, dot) != inside.size()) return std::nullopt;
  std::string path = PathOf(inside);
  if (!IsFile(path)) path = std::string(inside);  // a backslash may be one
  return Candidate{close + 1, std::move(path), BeginsPath(inside)};
}

// Up to the first extension, in this word or, where such a file is there, in a later one of the line.
std::optional<Candidate> WordAt(std::string_view prompt, size_t at) {
  if (!BeginsPath(prompt.substr(at))) return std::nullopt;
  bool one_word = true;
  for (size_t i = at; i < prompt.size() && prompt[i] != '\n'; ++i) {
    if (prompt[i] == '\\' && i + 1 < prompt.size()) {
      ++i;
      continue;
    }
    if (IsBlank(prompt[i])) one_word = false;
    const size_t end = prompt[i] == '.' ? EndOfExtension(prompt, i) : 0;
    if (end == 0) continue;
    std::string path = PathOf(prompt.substr(at, end - at));
    if (!one_word && !IsFile(path)) return std::nullopt;
    return Candidate{end, std::move(path), true};
  }
  return std::nullopt;
}

std::optional<Candidate> CandidateAt(std::string_view prompt, size_t at) {
  const bool quote = prompt[at] == '\'' || prompt[at] == '"';
  return quote ? QuotedAt(prompt, at) : WordAt(prompt, at);
}

api::Result<std::string> ReadFile(const std::string& path) {
  const auto fail = [&path] {
    return api::Fail(api::ErrorCode::kInvalidArgument, fmt::format("{}: {}", path, std::strerror(errno)));
  };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) return fail();
  std::string bytes;
  std::array<char, 65536> block;
  while (const size_t n = std::fread(block.data(), 1, block.size(), file.get()))
    bytes.append(block.data(), n);
  if (std::ferror(file.get()) != 0) return fail();
  return bytes;
}

}  // namespace

api::Result<ImagePrompt> ReadImages(std::string_view prompt) {
  ImagePrompt read;
  for (size_t at = 0; at < prompt.size();) {
    const bool begins = at == 0 || IsBlank(prompt[at - 1]) || prompt[at - 1] == '(';
    const auto candidate = begins ? CandidateAt(prompt, at) : std::nullopt;
    if (!candidate || !IsFile(candidate->path)) {
      if (candidate && candidate->certain) read.absent.push_back(candidate->path);
      const size_t end = candidate ? candidate->end : at + 1;
      read.text += prompt.substr(at, end - at);
      at = end;
      continue;
    }
    auto bytes = ReadFile(candidate->path);
    if (!bytes) return std::unexpected(std::move(bytes).error());
    read.files.push_back(*std::move(bytes));
    read.paths.push_back(candidate->path);
    at = candidate->end;
    // One blank of the two around it goes, too.
    if (at < prompt.size() && prompt[at] == ' ' && (read.text.empty() || IsBlank(read.text.back()))) ++at;
  }
  read.text = std::string(api::Trimmed(read.text));
  return read;
}

bool BeginsWithImage(std::string_view prompt) {
  const auto candidate = prompt.empty() ? std::nullopt : CandidateAt(prompt, 0);
  return candidate && IsFile(candidate->path);
}

}  // namespace quire::cli
