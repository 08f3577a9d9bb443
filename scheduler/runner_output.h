// What a runner writes to its standard output and error, as bounded lines of the daemon's log.
//
// Invariants: a runner cannot make the log grow by more than kLinesPerSecond lines of kLineBytesMax bytes in
// the long run; a pipe that is not read drops what the runner writes, so neither waits for the other; the
// last lines of a runner that ends are logged even if it wrote too many before, as far as it could write
// them: a full pipe is read again within 100 ms, for which a runner that crashes waits.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace quire::scheduler {

// Splits bytes into lines and drops those beyond the rate. Not thread-safe. Time is an argument.
class OutputLimiter {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr size_t kLineBytesMax = 1000;  // of the text as written; the rest of a line is dropped
  static constexpr int64_t kBurstLines = 200;    // a report of a sanitizer
  static constexpr int64_t kLinesPerSecond = 5;
  static constexpr size_t kLastLines = 20;  // logged at the end beyond the rate

  explicit OutputLimiter(Time now) : refilled_at_(now) {}

  // The lines to log now, without control characters and quotes, as UTF-8. A line that counts the dropped
  // ones stands in their place.
  std::vector<std::string> Append(std::string_view bytes, Time now);
  // At the end: the last of the dropped lines, and a line that has no end.
  std::vector<std::string> Finish();
  // Further lines would be dropped: reading can wait.
  bool exhausted() const { return tokens_ == 0; }

 private:
  void Refill(Time now);
  void EndLine(std::vector<std::string>& lines);
  void ReportDropped(std::vector<std::string>& lines, int64_t count);

  std::string partial_;
  bool cut_ = false;  // the line in partial_ is longer
  int64_t tokens_ = kBurstLines;
  Time refilled_at_;
  int64_t dropped_ = 0;           // since the last line that was logged
  std::deque<std::string> last_;  // the last kLastLines of them
};

// Logs the lines of `pipe` until it ends, with the model and the process. A runner that writes too much is
// read slowly. Executor of `pipe` only.
boost::asio::awaitable<void> LogRunnerOutput(boost::asio::posix::stream_descriptor pipe, std::string model,
                                             int pid);

}  // namespace quire::scheduler
