// The API keys as an admin sees, adds and removes them: GET, POST and DELETE /quire/keys. I/O thread only.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "api/base/fair/party.h"
#include "server/http/access.h"
#include "server/http/awaitable.h"

namespace quire::server {

struct KeyRequest {
  std::string name;
  Role role = Role::kInference;
  KeyLimits limits = {};
};

struct KeySources {
  std::function<std::vector<AccessControl::KeyUse>()> uses;
  // Makes a key, adds it to the daemon's key file and lets it in. The secret, which nothing keeps.
  std::function<Awaitable<api::Result<std::string>>(KeyRequest request, fair::PartyId party)> create;
  // Removes a key from the daemon's key file. From then on it lets nobody in, and its requests in progress
  // end.
  std::function<Awaitable<api::Result<void>>(std::string name, fair::PartyId party)> remove;
};

// {"name", "role", "weight", "parallel", "per_minute"}; a member that it does not know is an error.
api::Result<KeyRequest> ParseKeyRequest(std::string_view body);
// {"name"}, likewise.
api::Result<std::string> ParseKeyName(std::string_view body);
// JSON; docs/api.md describes the fields. Never a secret or a hash.
// `own`: name of the key of whoever looks.
std::string EncodeKeys(const std::vector<AccessControl::KeyUse>& uses, std::string_view own,
                       std::chrono::steady_clock::time_point now);

}  // namespace quire::server
