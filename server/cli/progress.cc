#include "server/cli/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/base/utf8.h"
#include "server/cli/spinner.h"
#include "server/cli/table.h"

namespace quire::cli {
namespace {

// "copying file sha256:1c3a..." with 12 digits of the digest, and without the name of the hash.
std::string ShortDigests(std::string_view text) {
  constexpr std::string_view kHash = "sha256:";
  constexpr size_t kDigits = 64, kDigitsShown = 12;
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = text.find(kHash, at);
    if (begin == std::string_view::npos) return out.append(text.substr(at));
    out += text.substr(at, begin - at);
    const std::string_view rest = text.substr(begin + kHash.size());
    const size_t digits = std::min(rest.find_first_not_of("0123456789abcdef"), rest.size());
    const bool digest = digits == kDigits;
    out += digest ? rest.substr(0, kDigitsShown) : text.substr(begin, kHash.size() + digits);
    at = begin + kHash.size() + digits;
  }
  return out;
}

// The first `columns` bytes of a text, at a character's end.
std::string Cut(std::string_view text, int columns) {
  size_t size = std::min(text.size(), static_cast<size_t>(std::max(columns, 0)));
  while (size > 0 && size < text.size() && api::IsContinuationByte(text[size])) --size;
  return std::string(text.substr(0, size));
}

}  // namespace

std::string RateText(int64_t done, int64_t left, double seconds) {
  if (done <= 0 || left <= 0 || seconds < 1) return {};
  const double rate = static_cast<double>(done) / seconds;
  return fmt::format("{}/s, {}", FormatSize(static_cast<int64_t>(rate)),
                     TimeLeft(static_cast<double>(left) / rate));
}

std::string ProgressLine(std::string_view full_text, int64_t completed, int64_t total, int columns,
                         std::string_view rate) {
  const std::string text = ShortDigests(full_text);
  if (total <= 0) return Cut(text, columns);
  completed = std::clamp<int64_t>(completed, 0, total);
  const auto done = static_cast<double>(completed) / static_cast<double>(total);
  std::string sizes =
      completed < total ? fmt::format("{}/{}", FormatSize(completed), FormatSize(total)) : FormatSize(total);
  if (!rate.empty()) sizes += fmt::format(", {}", rate);
  const std::string percent = fmt::format("{:3}%", static_cast<int>(done * 100));
  constexpr int kBarMax = 50, kBarMin = 5, kBorders = 5;
  const int room = columns - static_cast<int>(text.size() + percent.size() + sizes.size()) - kBorders;
  const int bar = std::min(room, kBarMax);
  if (bar < kBarMin) return Cut(fmt::format("{} {} {}", text, percent, sizes), columns);
  const int full = static_cast<int>(done * bar);
  std::string filled;
  for (int i = 0; i < full; ++i) filled += "\u2588";
  return fmt::format("{} {} \u2595{}{}\u258F {}", text, percent, filled,
                     std::string(static_cast<size_t>(bar - full), ' '), sizes);
}

bool Progress::OnLine(std::string_view json) {
  const auto line = nlohmann::json::parse(json, nullptr, false);
  if (!line.is_object() || !line.contains("status") || !line["status"].is_string()) return false;
  const auto number = [&line](const char* name) {
    const auto it = line.find(name);
    return it != line.end() && it->is_number_integer() ? it->get<int64_t>() : 0;
  };
  Update(line["status"].get<std::string>(), number("completed"), number("total"));
  return true;
}

void Progress::Update(const std::string& text, int64_t completed, int64_t total) {
  const auto found = std::ranges::find(lines_, text, &Line::text);
  if (columns_ == 0) {
    if (found != lines_.end()) return;
    fmt::print(out_, "{}\n", ShortDigests(text));
    lines_.push_back({text, {}});
    return;
  }
  if (found != lines_.end() && total <= 0) return;  // a step that comes again for the next file
  const auto now = std::chrono::steady_clock::now();
  const auto index = static_cast<size_t>(found - lines_.begin());
  if (found == lines_.end()) {
    if (!lines_.empty()) fmt::print(out_, "\n");
    lines_.push_back({.text = text, .first = completed, .begin = now});
  }
  Line& line = lines_[index];
  const double seconds = std::chrono::duration<double>(now - line.begin).count();
  std::string shown = ProgressLine(text, completed, total, columns_ - 1,
                                   RateText(completed - line.first, total - completed, seconds));
  if (shown == line.shown) return;
  line.shown = std::move(shown);
  Draw(index);
}

void Progress::Draw(size_t index) {
  const size_t above = lines_.size() - 1 - index;
  if (above > 0 && above >= static_cast<size_t>(std::max(rows_, 1))) return;
  if (above > 0) fmt::print(out_, "\x1b[{}A", above);
  fmt::print(out_, "\r{}\x1b[K", lines_[index].shown);
  if (above > 0) fmt::print(out_, "\x1b[{}B\r", above);
  std::fflush(out_);
}

void Progress::Finish() {
  if (columns_ > 0 && !lines_.empty()) fmt::print(out_, "\n");
  std::fflush(out_);
  lines_.clear();
}

}  // namespace quire::cli
