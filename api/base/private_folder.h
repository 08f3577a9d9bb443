// Folders and files that no other user writes. Blocks; any thread but the I/O thread.
#pragma once

#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "api/base/error.h"

namespace quire::api {

// A regular file of this process's user.
bool IsOwnFile(const struct stat& status);

// Creates the folder and its missing parents (0700); true: it was missing. One that exists keeps its mode,
// also behind a symbolic link. kInternal names the folder that cannot be created, or that others may write:
// group, all, or an owner other than this user and root. Nothing is created then.
Result<bool> MakePrivateFolder(const std::filesystem::path& folder);

// A file has such a name, another one each time, while it is written and locked (flock): "new-<16 hex
// digits>.quire-part".
std::string UnfinishedFileName();
// A file of that kind which nobody writes any more: what wrote it was killed.
bool IsAbandonedFile(const std::filesystem::path& path);

}  // namespace quire::api
