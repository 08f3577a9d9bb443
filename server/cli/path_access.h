// Finds why a user cannot access a path: the component, the user and the missing permission.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace quire::server {

struct UserAccount {
  std::string name;
  uid_t uid = 0;
  std::vector<gid_t> groups;  // the first is the primary one
};

// The user of that name, or the user of this process when the name is empty. Nothing: no such user.
std::optional<UserAccount> FindUserAccount(const std::string& name);

enum class AccessMode : uint8_t {
  kRead,
  kWrite
};  // for a directory: kRead lists it, kWrite creates files in it

// The first access error on the path from / to `path`, by modes and owners. The message names the component,
// the user and the permission: "/srv (drwx------ root root): quire cannot enter it: no x permission for
// others". Nothing: the path is accessible. Access control lists are mentioned, not evaluated.
std::optional<std::string> FindAccessError(const std::filesystem::path& path, const UserAccount& account,
                                           AccessMode mode);

}  // namespace quire::server
