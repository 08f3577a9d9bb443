// Requests to one repository of a registry: credentials, redirects, and which host may get which credential.
//
// Credentials and tokens go to the registry's own origin only: not to where it redirects to, and not to an
// authorization service on another host, which is asked for an anonymous token instead. A hub's token
// likewise.
#pragma once

#include <atomic>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "api/base/model_name.h"
#include "server/registry/challenge.h"
#include "server/registry/http.h"
#include "server/registry/hub.h"

namespace quire::server::registry {

struct Settings {
  std::vector<std::string> trusted;             // see AddressPolicy
  std::map<std::string, std::string> accounts;  // "host" or "host:port" -> base64 of "user:password"
  HubSettings hubs = {};
};

// The accounts of a Docker configuration file: {"auths": {"host": {"auth": "base64"}}}. kInvalidArgument
// names the file and what is wrong.
api::Result<std::map<std::string, std::string>> ReadAccounts(const std::filesystem::path& file);

// Blocks; one thread at a time.
class Session {
 public:
  // `insecure`: HTTP instead of HTTPS. `push`: tokens are asked for with the right to write. The references
  // outlive this.
  Session(const Settings& settings, const AddressPolicy& policy, const api::ModelName& name, bool insecure,
          bool push, const std::atomic<bool>& cancelled);

  // For a hub: `base` begins with its origin, to which `token` (or none) goes. What it denies is kForbidden,
  // and `denied` its message.
  Session(const AddressPolicy& policy, std::string base, std::string_view token, std::string denied,
          const std::atomic<bool>& cancelled);

  // "https://host/v2/namespace/model/" + path
  std::string UrlOf(std::string_view path) const;
  // Answers 401 with what the registry asks for, and follows redirects of GET and HEAD. Errors as Http.
  api::Result<Reply> Send(const Request& request, const Sink& sink = {});

 private:
  api::Result<Reply> SendAs(const Request& request, const Sink& sink);
  api::Result<void> Authorize(const std::string& field);
  api::Result<std::string> FetchToken(const Challenge& challenge);
  const std::string* Account() const;

  const Settings* settings_ = nullptr;  // null: of a hub
  Http http_;
  api::ModelName name_;
  bool push_ = false;
  std::string base_;
  Origin origin_;
  std::string authorization_;  // of the header, or empty
  std::string denied_;         // of a hub
};

}  // namespace quire::server::registry
