#include "server/cli/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace quire::cli {

int Columns(std::FILE* file) {
  winsize size{};
  const int fd = ::fileno(file);
  if (::isatty(fd) == 0 || ::ioctl(fd, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

int PrintError(const api::Error& error) {
  fmt::print(stderr, "Error: {}\n", error.message);
  return 1;
}

int FollowProgress(Client& client, std::string_view path, std::string body, Progress& progress) {
  std::optional<api::Error> failed;
  bool succeeded = false;
  const auto done = client.PostLines(path, std::move(body), [&](std::string_view line) {
    if (line.empty() || failed) return;
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (json.is_object() && json.contains("error")) {
      failed =
          api::Error{api::ErrorCode::kInternal,
                     json["error"].is_string() ? json["error"].get<std::string>() : json["error"].dump()};
      return;
    }
    succeeded = json.is_object() && json.value("status", "") == "success";
    progress.OnLine(line);
  });
  progress.Finish();
  if (!done) return PrintError(done.error());
  if (failed) return PrintError(*failed);
  if (!succeeded)
    return PrintError({api::ErrorCode::kInternal, "the server closed the stream before finishing"});
  return 0;
}

}  // namespace quire::cli
