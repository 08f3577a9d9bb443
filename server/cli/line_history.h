// The lines that were typed before, in memory for libedit and in a file for the next process.
#pragma once

#include <filesystem>
#include <string>

struct history;

namespace quire::cli {

// One thread. Several processes may append to one file.
class LineHistory {
 public:
  // Loads the file. An empty path: nothing is kept.
  explicit LineHistory(std::filesystem::path file);
  ~LineHistory();
  LineHistory(const LineHistory&) = delete;
  LineHistory& operator=(const LineHistory&) = delete;

  // The line is in the file when this returns; a file that cannot be written is ignored.
  void Add(const std::string& line);

  history* handle() const { return history_; }

 private:
  std::filesystem::path file_;
  history* history_;
};

}  // namespace quire::cli
