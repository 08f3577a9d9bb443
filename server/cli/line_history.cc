#include "server/cli/line_history.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <histedit.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>
#include <utility>

#include "api/base/file_descriptor.h"

namespace quire::cli {
namespace {

constexpr int kHistoryLinesMax = 1000;
constexpr std::string_view kHeader = "_HiStOrY_V2_\n";  // libedit's, which loads the file

// An entry as libedit reads it, on one line.
std::string Encode(std::string_view text) {
  std::string line;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte > ' ' && byte < 0x7f && c != '\\') {
      line += c;
    } else {
      fmt::format_to(std::back_inserter(line), "\\{:03o}", byte);
    }
  }
  return line + "\n";
}

int64_t CountLines(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return std::count(std::istreambuf_iterator<char>(in), {}, '\n');
}

}  // namespace

LineHistory::LineHistory(std::filesystem::path file) : file_(std::move(file)), history_(::history_init()) {
  HistEvent event;
  ::history(history_, &event, H_SETSIZE, kHistoryLinesMax);
  ::history(history_, &event, H_SETUNIQUE, 1);
  if (file_.empty()) return;
  ::history(history_, &event, H_LOAD, file_.c_str());
  if (CountLines(file_) <= int64_t{2} * kHistoryLinesMax) return;
  const mode_t before = ::umask(077);
  ::history(history_, &event, H_SAVE, file_.c_str());  // the newest kHistoryLinesMax
  ::umask(before);
}

LineHistory::~LineHistory() { ::history_end(history_); }

void LineHistory::Add(const std::string& line) {
  HistEvent event;
  ::history(history_, &event, H_ENTER, line.c_str());
  if (file_.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(file_.parent_path(), ignored);
  const api::FileDescriptor fd(::open(file_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600));
  if (!fd.valid()) return;
  struct stat status {};
  const bool fresh = ::fstat(fd.get(), &status) == 0 && status.st_size == 0;
  const std::string text = (fresh ? std::string(kHeader) : std::string()) + Encode(line);
  [[maybe_unused]] const ssize_t written = ::write(fd.get(), text.data(), text.size());
}

}  // namespace quire::cli
