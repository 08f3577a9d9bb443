// What keeps a user from a path: the component, the user and the missing bit.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace quire::server {

struct Person {
  std::string name;
  uid_t uid = 0;
  std::vector<gid_t> groups;  // the first is the primary one
};

// The user of that name, or the one that runs this process when it is empty. Nothing: there is no such user.
std::optional<Person> FindPerson(const std::string& name);

enum class Need : uint8_t {
  kRead,
  kWrite
};  // of a directory kRead is to list it, kWrite to make files in it

// The first thing in the way from / to `path`, by modes and owners, as one sentence that names the component,
// the user and the bit: "/srv (drwx------ root root): quire cannot enter it: x is missing for others".
// Nothing: the way is clear. Access control lists are mentioned, not judged.
std::optional<std::string> Obstacle(const std::filesystem::path& path, const Person& person, Need need);

}  // namespace quire::server
