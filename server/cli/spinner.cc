#include "server/cli/spinner.h"

#include <fmt/format.h>
#include <langinfo.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "server/cli/terminal.h"

namespace quire::cli {
namespace {

constexpr int kSilentTicks = 2;
constexpr std::array<std::string_view, 10> kFrames = {"\u280b", "\u2819", "\u2839", "\u2838", "\u283c",
                                                      "\u2834", "\u2826", "\u2827", "\u2807", "\u280f"};
constexpr std::array<std::string_view, 4> kPlainFrames = {"|", "/", "-", "\\"};

std::string_view Frame(int ticks) {
  const auto tick = static_cast<size_t>(ticks);
  const bool unicode = std::string_view(::nl_langinfo(CODESET)) == "UTF-8";
  return unicode ? kFrames[tick % kFrames.size()] : kPlainFrames[tick % kPlainFrames.size()];
}

// 36,013
std::string Grouped(int64_t number) {
  std::string digits = std::to_string(number);
  for (auto at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<size_t>(at), 1, ',');
  }
  return digits;
}

}  // namespace

std::string TimeLeft(double seconds) {
  const auto whole = static_cast<int64_t>(std::ceil(seconds));
  if (whole < 60) return fmt::format("{} s left", whole);
  if (whole < 3600) return fmt::format("{} min {} s left", whole / 60, whole % 60);
  return fmt::format("{} h {} min left", whole / 3600, whole / 60 % 60);
}

std::string PrefillText(const PrefillReport& report) {
  std::string text =
      fmt::format("prefilling {} of {} tokens", Grouped(report.processed), Grouped(report.total));
  const int64_t computed = report.processed - report.cached;
  if (computed <= 0 || report.elapsed_ms <= 0) return text;
  const double rate = static_cast<double>(computed) * 1000 / static_cast<double>(report.elapsed_ms);
  const int64_t left = std::max<int64_t>(report.total - report.processed, 0);
  return fmt::format("{}, {:.{}f} tokens/s, {}", text, rate, rate < 10 ? 1 : 0,
                     TimeLeft(static_cast<double>(left) / rate));
}

Spinner::Spinner(std::FILE* out) : out_(out), enabled_(HasEscapes(out)) {}

void Spinner::Show(std::string text) {
  if (text_.empty()) ticks_ = 0;
  text_ = std::move(text);
}

void Spinner::Update(std::string text) {
  if (!text_.empty()) text_ = std::move(text);
}

void Spinner::Tick() {
  if (!enabled_ || text_.empty() || ++ticks_ < kSilentTicks) return;
  constexpr size_t kFrameColumns = 3;  // with its space, and the last column, which stays free
  const auto columns = static_cast<size_t>(std::max(Columns(out_), 0));
  if (columns <= kFrameColumns) return;
  fmt::print(out_, "\r{} {}\033[K", Frame(ticks_),
             std::string_view(text_).substr(0, columns - kFrameColumns));
  std::fflush(out_);
  drawn_ = true;
}

void Spinner::Stop() {
  text_.clear();
  if (!std::exchange(drawn_, false)) return;
  fmt::print(out_, "\r\033[K");
  std::fflush(out_);
}

}  // namespace quire::cli
