// What a registry that answers 401 asks for: the WWW-Authenticate header (RFC 9110, section 11.6.1).
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace quire::server::registry {

struct Challenge {
  std::string scheme;                             // lower case
  std::map<std::string, std::string> parameters;  // by lower-case name; the last of a name counts

  // Empty if there is none.
  std::string Parameter(const std::string& name) const {
    const auto found = parameters.find(name);
    return found == parameters.end() ? std::string() : found->second;
  }
  bool operator==(const Challenge&) const = default;
};

// The first challenge of the field, up to the first text that is no parameter. Values may stand without
// quotes, and may then contain anything but a comma and white space.
Challenge ParseChallenge(std::string_view field);

}  // namespace quire::server::registry
