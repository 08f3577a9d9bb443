#include "server/cli/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

namespace quire::cli {

namespace {

winsize SizeOf(std::FILE* file) {
  winsize size{};
  const int fd = ::fileno(file);
  return ::isatty(fd) != 0 && ::ioctl(fd, TIOCGWINSZ, &size) == 0 ? size : winsize{};
}

}  // namespace

int Columns(std::FILE* file) { return SizeOf(file).ws_col; }

int Rows(std::FILE* file) { return SizeOf(file).ws_row; }

bool HasEscapes(std::FILE* file) {
  const char* type = std::getenv("TERM");
  const bool dumb = type == nullptr || *type == '\0' || std::string_view(type) == "dumb";
  return !dumb && Columns(file) > 0;
}

bool HasColors(std::FILE* file) {
  const char* none = std::getenv("NO_COLOR");
  return (none == nullptr || *none == '\0') && HasEscapes(file);
}

api::Result<void> WriteOut(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (std::fflush(stdout) == 0 && written) return {};
  return api::Fail(api::ErrorCode::kUnavailable, fmt::format("cannot write to standard output: {}",
                                                             std::generic_category().message(errno)));
}

int FlushOutput(int code) {
  const auto flushed = WriteOut({});  // first: the error number is of the flush that fails
  const bool lost = std::ferror(stdout) != 0 || !std::cout.flush();
  if (code != 0 || (flushed && !lost)) return code;
  return PrintError(flushed ? api::Error{api::ErrorCode::kUnavailable, "cannot write to standard output"}
                            : flushed.error());
}

int PrintError(const api::Error& error) {
  fmt::print(stderr, "Error: {}\n", error.message);
  return 1;
}

int FollowProgress(Client& client, std::string_view path, std::string body, Progress& progress) {
  bool succeeded = false;
  const auto on_line = [&](std::string_view line) -> api::Result<void> {
    if (line.empty()) return {};
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (json.is_object() && json.contains("error")) {
      return api::Fail(api::ErrorCode::kInternal,
                       json["error"].is_string() ? json["error"].get<std::string>() : json["error"].dump());
    }
    succeeded = json.is_object() && json.value("status", "") == "success";
    progress.OnLine(line);
    return {};
  };
  const auto done = client.PostLines(path, std::move(body), {on_line});
  progress.Finish();
  if (!done) return PrintError(done.error());
  if (!succeeded)
    return PrintError({api::ErrorCode::kInternal, "the server closed the stream before finishing"});
  return 0;
}

}  // namespace quire::cli
