#include "server/cli/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "server/cli/table.h"

namespace quire::cli {

std::string ProgressLine(std::string_view text, int64_t completed, int64_t total, int columns) {
  if (total <= 0) return std::string(text);
  completed = std::clamp<int64_t>(completed, 0, total);
  const auto done = static_cast<double>(completed) / static_cast<double>(total);
  const std::string sizes =
      completed < total ? fmt::format("{}/{}", FormatSize(completed), FormatSize(total)) : FormatSize(total);
  const std::string percent = fmt::format("{:3}%", static_cast<int>(done * 100));
  constexpr int kBarMax = 50, kBarMin = 5, kBorders = 5;
  const int room = columns - static_cast<int>(text.size() + percent.size() + sizes.size()) - kBorders;
  const int bar = std::min(room, kBarMax);
  if (bar < kBarMin) return fmt::format("{} {} {}", text, percent, sizes);
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
  auto found = std::ranges::find(lines_, text, &Line::text);
  if (found == lines_.end()) {
    if (columns_ == 0) fmt::print(out_, "{}\n", text);
    found = lines_.insert(lines_.end(), {text, {}});
  }
  if (columns_ == 0) return;
  std::string shown = ProgressLine(text, completed, total, columns_);
  if (shown == found->shown) return;
  found->shown = std::move(shown);
  Redraw();
}

void Progress::Redraw() {
  std::string out;
  if (drawn_ > 0) out = fmt::format("\x1b[{}A", drawn_);
  for (const Line& line : lines_) out += fmt::format("\r{}\x1b[K\n", line.shown);
  drawn_ = lines_.size();
  std::fwrite(out.data(), 1, out.size(), out_);
  std::fflush(out_);
}

void Progress::Finish() {
  lines_.clear();
  drawn_ = 0;
}

}  // namespace quire::cli
