// Who may do what, decided before a request's body is read: the key that it presents, the route's need and
// the key's limits. I/O thread only.
#pragma once

#include <chrono>
#include <expected>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/fair/quota.h"
#include "server/http/api_keys.h"
#include "server/http/message.h"

namespace quire::server {

// The role that a route requires, if there are keys. Without keys every route is open.
enum class Access : uint8_t { kOpen, kInference, kAdmin };

// A key's limit of requests per minute.
struct RateState {
  int32_t limit = 0;                   // requests per minute
  int32_t remaining = 0;               // that may start now
  std::chrono::seconds full_after{0};  // until `limit` may start at once
};

class AccessControl {
 public:
  using Time = std::chrono::steady_clock::time_point;

  struct Admitted {
    std::string name;    // of the key; empty where none is needed
    bool admin = false;  // the key has the admin role, or there are no keys
    int32_t weight = 1;
    fair::Quota::Lease permit;           // one of its concurrent requests, where they are counted
    std::optional<RateState> rate = {};  // where the key has such a limit and the request counts
  };
  struct Refusal {
    int status = 401;  // 401 no key or a wrong one, 403 not for its role, 429 beyond its limits
    std::string message;
    std::chrono::seconds retry_after{0};
    std::optional<RateState> rate = {};
  };

  // From now on; running requests keep their permits, and count. How a key was used is otherwise forgotten
  // with it.
  void Replace(KeyRing keys);
  // Whether there are no keys, or one of this name.
  bool Knows(std::string_view name) const { return keys_.empty() || keys_.Names(name); }
  bool required() const { return !keys_.empty(); }

  // How a key was used, since the start.
  struct KeyUse {
    std::string name;
    Role role = Role::kInference;
    KeyLimits limits = {};
    uint64_t requests = 0;          // that it let in, without open routes
    std::optional<Time> last = {};  // the last of them
  };
  std::vector<KeyUse> Uses() const;  // in the order of the keys

  // The key is "Authorization: Bearer KEY" or "x-api-key: KEY"; when both are there, one of them is enough.
  // `counted`: the request is one of those that limits are about.
  std::expected<Admitted, Refusal> Admit(const HttpRequest& request, Access needed, bool counted, Time now);

 private:
  const ApiKey* KeyOf(const HttpRequest& request) const;
  std::expected<Admitted, Refusal> AdmitKey(const ApiKey& key, bool counted, Time now);

  KeyRing keys_;
  // The current use of a key.
  struct Use {
    fair::Quota running;
    double allowance = 0;  // requests that may start now; refilled with time up to a minute's worth
    std::optional<Time> refilled;
  };
  std::map<std::string, Use> uses_;  // by key name, of keys with limits
  struct Record {
    uint64_t requests = 0;
    Time last{};
  };
  std::map<std::string, Record> records_;  // by key name, of keys that were used
};

}  // namespace quire::server
