#include "server/cli/key.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "api/base/file_descriptor.h"
#include "server/cli/terminal.h"

namespace quire::cli {
namespace {

// Adds the line in one write. A file that is new is its owner's alone.
api::Result<void> Append(const std::string& path, const std::string& line) {
  const auto fail = [&path](const std::string& why) {
    return api::Fail(api::ErrorCode::kUnavailable, fmt::format("{}: {}", path, why));
  };
  const api::FileDescriptor fd(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600));
  if (!fd.valid()) return fail(std::generic_category().message(errno));
  const ssize_t written = ::write(fd.get(), line.data(), line.size());
  const int error = errno;
  const bool whole = written == static_cast<ssize_t>(line.size()) && ::fsync(fd.get()) == 0;
  if (!whole) return fail(written < 0 ? std::generic_category().message(error) : "cannot write the line");
  return {};
}

}  // namespace

int MakeKey(const KeyOptions& options) {
  const server::Role role = options.admin ? server::Role::kAdmin : server::Role::kInference;
  const auto key = server::MakeKey(options.name, role, options.limits);
  if (!key) return PrintError(key.error());
  // Parsed as the daemon will: what cannot be used is not handed out.
  std::error_code ec;
  const bool exists = !options.file.empty() && std::filesystem::exists(options.file, ec);
  if (exists) {
    const auto there = server::KeyRing::Read(options.file);
    if (!there) return PrintError(there.error());
    if (there->Names(options.name)) {
      return PrintError({api::ErrorCode::kInvalidArgument,
                         fmt::format("{} already contains a key named {}", options.file, options.name)});
    }
  }
  if (const auto readable = server::KeyRing::Parse(key->line); !readable) return PrintError(readable.error());
  if (!options.file.empty()) {
    if (const auto appended = Append(options.file, key->line + "\n"); !appended)
      return PrintError(appended.error());
    fmt::print("{}\n", key->secret);
    return 0;
  }
  fmt::print("{}\n", key->secret);
  fmt::print(stderr, "The key above will not be shown again. Line for the daemon's key file:\n");
  fmt::print("{}\n", key->line);
  return 0;
}

}  // namespace quire::cli
