#include "server/cli/key.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "server/cli/terminal.h"
#include "server/http/key_file.h"

namespace quire::cli {

int ChangeKeys(const KeyOptions& options) {
  if (options.remove_from.empty()) return MakeKey(options);
  const auto left = server::RemoveKey(options.remove_from, options.name);
  if (!left) return PrintError(left.error());
  fmt::print("Removed {}. The server forgets it at its next reload or restart.\n", options.name);
  return 0;
}

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
    if (const auto appended = server::AppendKey(options.file, *key); !appended)
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
