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

// One of r, w, x as its place in three bits.
struct Bit {
  mode_t mask;
  char letter;
};
constexpr Bit kReadBit{4, 'r'};
constexpr Bit kWriteBit{2, 'w'};
constexpr Bit kEnterBit{1, 'x'};

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
    for (const Bit bit : {kReadBit, kWriteBit, kEnterBit}) {
      text.push_back((mode & (bit.mask << shift)) != 0 ? bit.letter : '-');
    }
  }
  return text;
}

// Who the person is to a file, as the kernel decides it: the first that applies counts alone.
struct Class {
  int shift;
  const char* name;
};
Class ClassOf(const struct stat& status, const Person& person) {
  if (status.st_uid == person.uid) return {6, "its owner"};
  if (std::ranges::find(person.groups, status.st_gid) != person.groups.end()) return {3, "its group"};
  return {0, "others"};
}

std::optional<std::string> Check(const fs::path& path, const struct stat& status, const Person& person,
                                 Bit bit, std::string_view deed) {
  if (person.uid == 0) return std::nullopt;
  const Class who = ClassOf(status, person);
  if ((status.st_mode >> who.shift & bit.mask) != 0) return std::nullopt;
  const bool listed = ::getxattr(path.c_str(), "system.posix_acl_access", nullptr, 0) > 0;
  return fmt::format("{} ({} {} {}): {} cannot {} it: {} is missing for {}{}", path.string(),
                     ModeText(status.st_mode), NameOfUser(status.st_uid), NameOfGroup(status.st_gid),
                     person.name, deed, bit.letter, who.name,
                     listed ? " (it has an access control list, which may say otherwise: getfacl)" : "");
}

std::string Missing(const fs::path& path, int error) {
  return fmt::format("{}: {}", path.string(), std::generic_category().message(error));
}

}  // namespace

std::optional<Person> FindPerson(const std::string& name) {
  const passwd* entry = name.empty() ? ::getpwuid(::geteuid()) : ::getpwnam(name.c_str());
  if (entry == nullptr) return std::nullopt;
  Person person{entry->pw_name, entry->pw_uid, std::vector<gid_t>(256)};
  int count = static_cast<int>(person.groups.size());
  if (::getgrouplist(entry->pw_name, entry->pw_gid, person.groups.data(), &count) < 0) count = 0;
  person.groups.resize(static_cast<size_t>(std::max(count, 0)));
  if (person.groups.empty()) person.groups.push_back(entry->pw_gid);
  return person;
}

std::optional<std::string> Obstacle(const fs::path& path, const Person& person, Need need) {
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
    if (auto found = Check(at, status, person, kEnterBit, "enter")) return found;
  }
  const bool directory = S_ISDIR(status.st_mode);
  if (auto found = Check(real, status, person, kReadBit, directory ? "list" : "read")) return found;
  if (need == Need::kWrite)
    return Check(real, status, person, kWriteBit, directory ? "make files in" : "write");
  return std::nullopt;
}

}  // namespace quire::server
