// Progress lines: each redrawn in place on a terminal, printed once each elsewhere.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace quire::cli {

// "pulling 1c3a4f5b6d7e  42% ▕███████          ▏ 1.2 GB/2.9 GB" within `columns`, and `rate` behind it;
// `total` 0 = the text alone. A digest in the text is shown by its first 12 digits.
std::string ProgressLine(std::string_view text, int64_t completed, int64_t total, int columns,
                         std::string_view rate = {});

// "12 MB/s, 2 min 20 s left" after `done` bytes in `seconds`; empty while nothing is known of it.
std::string RateText(int64_t done, int64_t left, double seconds);

// One thread.
class Progress {
 public:
  // `columns` and `rows` are the terminal's behind `out`; 0 columns = it is none. Lines that have left the
  // screen are not drawn again.
  Progress(std::FILE* out, int columns, int rows) : out_(out), columns_(columns), rows_(rows) {}
  ~Progress() { Finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // A line of a progress stream of the API: {"status", "digest", "total", "completed"}. Lines of the same
  // status and digest are one. False when it is none of these ("error").
  bool OnLine(std::string_view json);
  void Update(const std::string& text, int64_t completed, int64_t total);
  // The lines stay; what follows begins on a new one.
  void Finish();

 private:
  struct Line {
    std::string text;
    std::string shown = {};
    int64_t first = 0;  // bytes that were there when it began
    std::chrono::steady_clock::time_point begin = {};
  };
  void Draw(size_t index);

  std::FILE* out_;
  int columns_;
  int rows_;
  std::vector<Line> lines_;  // the cursor is on the last one's
};

}  // namespace quire::cli
