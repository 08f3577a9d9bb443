#include "scheduler/runner_output.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cctype>
#include <utility>

#include "api/base/utf8.h"
#include "scheduler/clock.h"

namespace quire::scheduler {
namespace {

using boost::asio::as_tuple;
using boost::asio::use_awaitable;

constexpr size_t kPipeBytes = size_t{64} << 10;  // that a pipe holds
constexpr std::chrono::milliseconds kPause{100};

// Fit to stand between quotes in one line of the log.
std::string Printable(std::string text) {
  std::ranges::replace_if(
      text, [](unsigned char c) { return std::iscntrl(c) != 0; }, ' ');
  std::ranges::replace(text, '"', '\'');
  return api::ReplaceInvalidUtf8(text);
}

void LogLines(const std::vector<std::string>& lines, const std::string& model, int pid) {
  for (const std::string& line : lines) {
    spdlog::warn("runner output model={} runner_pid={} text=\"{}\"", model, pid, line);
  }
}

}  // namespace

std::vector<std::string> OutputLimiter::Append(std::string_view bytes, Time now) {
  Refill(now);
  std::vector<std::string> lines;
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, end);
    const size_t room = kLineBytesMax - partial_.size();
    partial_ += piece.substr(0, room);
    cut_ = cut_ || piece.size() > room;
    if (end == std::string_view::npos) break;
    EndLine(lines);
    bytes.remove_prefix(end + 1);
  }
  return lines;
}

std::vector<std::string> OutputLimiter::Finish() {
  std::vector<std::string> lines;
  if (!partial_.empty()) EndLine(lines);
  if (dropped_ == 0) return lines;
  ReportDropped(lines, dropped_ - static_cast<int64_t>(last_.size()));
  lines.insert(lines.end(), last_.begin(), last_.end());
  last_.clear();
  dropped_ = 0;
  return lines;
}

void OutputLimiter::Refill(Time now) {
  constexpr auto kPerLine = std::chrono::nanoseconds(std::chrono::seconds(1)) / kLinesPerSecond;
  const int64_t lines = std::max<int64_t>((now - refilled_at_) / kPerLine, 0);
  refilled_at_ += kPerLine * lines;
  tokens_ = lines > kBurstLines ? kBurstLines : std::min(tokens_ + lines, kBurstLines);
}

void OutputLimiter::EndLine(std::vector<std::string>& lines) {
  std::string line = Printable(std::exchange(partial_, {})) + (std::exchange(cut_, false) ? "..." : "");
  if (tokens_ == 0) {
    ++dropped_;
    last_.push_back(std::move(line));
    if (last_.size() > kLastLines) last_.pop_front();
    return;
  }
  --tokens_;
  ReportDropped(lines, std::exchange(dropped_, 0));
  last_.clear();
  lines.push_back(std::move(line));
}

void OutputLimiter::ReportDropped(std::vector<std::string>& lines, int64_t count) {
  if (count > 0) lines.push_back(fmt::format("[{} lines dropped]", count));
}

boost::asio::awaitable<void> LogRunnerOutput(boost::asio::posix::stream_descriptor pipe, std::string model,
                                             int pid) {
  OutputLimiter limiter(Clock::now());
  std::vector<char> buffer(kPipeBytes);
  Timer pause(pipe.get_executor());
  while (true) {
    const auto [error, bytes] =
        co_await pipe.async_read_some(boost::asio::buffer(buffer), as_tuple(use_awaitable));
    if (error) break;
    LogLines(limiter.Append({buffer.data(), bytes}, Clock::now()), model, pid);
    if (!limiter.exhausted()) continue;
    pause.expires_after(kPause);
    co_await pause.async_wait(as_tuple(use_awaitable));
  }
  LogLines(limiter.Finish(), model, pid);
}

}  // namespace quire::scheduler
