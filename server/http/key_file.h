// The key file on disk (its lines: api_keys.h). Who changes it locks it, so that no two changes of it meet. A
// change is a new file that takes the place of the old one, with its owner and mode: who reads it, and who
// finds it after a failed write or a crash, has it before the change or after it. Any thread that may block.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "api/base/error.h"
#include "server/http/api_keys.h"

namespace quire::server {

// Adds the key's line to the file; a new file is its owner's alone. The value: all keys of the file. The
// error names the path. kInvalidArgument: no daemon would read the file with this line.
api::Result<KeyRing> AppendKey(const std::filesystem::path& path, const NewKey& key);

struct AddedKey {
  std::string secret;
  KeyRing keys;  // all of the file
};
// Makes a key and adds it to the file, which others may have changed. kInvalidArgument: the name is taken, or
// is none.
api::Result<AddedKey> AddKey(const std::filesystem::path& path, std::string_view name, Role role,
                             const KeyLimits& limits);

// Removes the key's line and returns the keys that are left. All other lines stay, and so do the file's owner
// and mode. kNotFound: there is no such key. kForbidden: it is the only one, and a file without keys would
// let everybody in.
api::Result<KeyRing> RemoveKey(const std::filesystem::path& path, std::string_view name);

}  // namespace quire::server
