#include "server/cli/path_access.h"

#include <fmt/format.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <system_error>

namespace quire::server {
namespace {

namespace fs = std::filesystem;

// One of r, w, x and its mode bit.
struct Permission {
  mode_t mask;
  char letter;
};
constexpr Permission kReadPermission{4, 'r'};
constexpr Permission kWritePermission{2, 'w'};
constexpr Permission kSearchPermission{1, 'x'};

std::string NameOfUser(uid_t uid) {
  const passwd* user = ::getpwuid(uid);
  return user != nullptr ? user->pw_name : fmt::format("{}", uid);
}

std::string NameOfGroup(gid_t gid) {
  const group* entry = ::getgrgid(gid);
  return entry != nullptr ? entry->gr_name : fmt::format("{}", gid);
}

// "drwxr-x---"
std::string ModeText(mode_t mode) {
  std::string text = S_ISDIR(mode) ? "d" : S_ISSOCK(mode) ? "s" : "-";
  for (int shift = 6; shift >= 0; shift -= 3) {
    for (const Permission permission : {kReadPermission, kWritePermission, kSearchPermission}) {
      text.push_back((mode & (permission.mask << shift)) != 0 ? permission.letter : '-');
    }
  }
  return text;
}

// The permission class of the account for a file: as in the kernel, only the first that applies counts.
struct Class {
  int shift;
  const char* name;
};
Class ClassOf(const struct stat& status, const UserAccount& account) {
  if (status.st_uid == account.uid) return {6, "its owner"};
  if (std::ranges::find(account.groups, status.st_gid) != account.groups.end()) return {3, "its group"};
  return {0, "others"};
}

std::optional<std::string> Check(const fs::path& path, const struct stat& status, const UserAccount& account,
                                 Permission permission, std::string_view action) {
  if (account.uid == 0) return std::nullopt;
  const Class who = ClassOf(status, account);
  if ((status.st_mode >> who.shift & permission.mask) != 0) return std::nullopt;
  const bool listed = ::getxattr(path.c_str(), "system.posix_acl_access", nullptr, 0) > 0;
  return fmt::format("{} ({} {} {}): {} cannot {} it: no {} permission for {}{}", path.string(),
                     ModeText(status.st_mode), NameOfUser(status.st_uid), NameOfGroup(status.st_gid),
                     account.name, action, permission.letter, who.name,
                     listed ? " (it has an access control list that may grant access; see getfacl)" : "");
}

std::string Missing(const fs::path& path, int error) {
  return fmt::format("{}: {}", path.string(), std::generic_category().message(error));
}

}  // namespace

std::optional<UserAccount> FindUserAccount(const std::string& name) {
  const passwd* entry = name.empty() ? ::getpwuid(::geteuid()) : ::getpwnam(name.c_str());
  if (entry == nullptr) return std::nullopt;
  UserAccount account{entry->pw_name, entry->pw_uid, std::vector<gid_t>(256)};
  int count = static_cast<int>(account.groups.size());
  if (::getgrouplist(entry->pw_name, entry->pw_gid, account.groups.data(), &count) < 0) count = 0;
  account.groups.resize(static_cast<size_t>(std::max(count, 0)));
  if (account.groups.empty()) account.groups.push_back(entry->pw_gid);
  return account;
}

std::optional<std::string> FindAccessError(const fs::path& path, const UserAccount& account,
                                           AccessMode mode) {
  std::error_code ec;
  // Links resolved as far as they can be seen: what counts are the directories that they lead through.
  fs::path real = fs::weakly_canonical(fs::absolute(path, ec), ec);
  if (ec) real = fs::absolute(path, ec);
  fs::path at;
  struct stat status {};
  for (auto part = real.begin(); part != real.end(); ++part) {
    at /= *part;
    if (::stat(at.c_str(), &status) != 0) return Missing(at, errno);
    const bool last = std::next(part) == real.end();
    if (!last && !S_ISDIR(status.st_mode)) return Missing(at, ENOTDIR);
    if (last && !S_ISDIR(status.st_mode)) break;
    if (auto found = Check(at, status, account, kSearchPermission, "enter")) return found;
  }
  const bool directory = S_ISDIR(status.st_mode);
  if (auto found = Check(real, status, account, kReadPermission, directory ? "list" : "read")) return found;
  if (mode == AccessMode::kWrite)
    return Check(real, status, account, kWritePermission, directory ? "create files in" : "write");
  return std::nullopt;
}

}  // namespace quire::server
