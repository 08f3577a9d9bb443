// Progress lines: redrawn in place on a terminal, printed once each elsewhere.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace quire::cli {

// "pulling 1c3a4f5b6d7e  42% ▕███████          ▏ 1.2 GB/2.9 GB" within `columns`; `total` 0 = the text
// alone. A digest in the text is shown by its first 12 digits.
std::string ProgressLine(std::string_view text, int64_t completed, int64_t total, int columns);

// One thread.
class Progress {
 public:
  // `columns` of the terminal behind `out`; 0 = it is none.
  Progress(std::FILE* out, int columns) : out_(out), columns_(columns) {}
  ~Progress() { Finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // A line of a progress stream of the API: {"status", "digest", "total", "completed"}. Lines of the same
  // status and digest are one. False when it is none of these ("error").
  bool OnLine(std::string_view json);
  void Update(const std::string& text, int64_t completed, int64_t total);
  // The current text stays; what follows begins on a new line.
  void Finish();

 private:
  struct Line {
    std::string text;
    std::string shown;
  };
  void Draw(const Line& line);

  std::FILE* out_;
  int columns_;
  std::vector<Line>
      lines_;  // the last one stands on the terminal's last line, which is all that is drawn again
};

}  // namespace quire::cli
