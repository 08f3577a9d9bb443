// The keys that let a client in: a name, a role and limits each; only the SHA-256 of a key's secret is kept.
//
// A key file has one key per line: NAME inference|admin sha256:HEX [weight=N] [parallel=N] [per_minute=N].
// Empty lines and lines that begin with '#' are skipped. Secrets are random 256 bits (MakeKey), so that their
// plain hash gives nothing away. Values are immutable once parsed; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"

namespace quire::server {

enum class Role : uint8_t { kInference, kAdmin };  // an admin may do all that inference may

struct KeyLimits {
  int32_t weight = 1;      // share of the machine beside other keys
  int32_t parallel = 0;    // requests at once; 0 = any number
  int32_t per_minute = 0;  // requests a minute, on average; 0 = any number
};

struct ApiKey {
  std::string name;  // of a key's holder, for logs; unique in its file
  Role role = Role::kInference;
  std::array<unsigned char, 32> digest = {};
  KeyLimits limits = {};
};

class KeyRing {
 public:
  KeyRing() = default;

  // Errors name the line; never a secret or a hash.
  static api::Result<KeyRing> Parse(std::string_view text);
  // Refuses a file that others than its owner may write. The error names the path.
  static api::Result<KeyRing> Read(const std::filesystem::path& path);

  // The key of this secret, or null. Takes the same time for every secret of a length.
  const ApiKey* Find(std::string_view secret) const;
  bool Names(std::string_view name) const;  // whether a key is called that
  const std::vector<ApiKey>& keys() const { return keys_; }
  bool empty() const { return keys_.empty(); }
  size_t size() const { return keys_.size(); }

 private:
  std::vector<ApiKey> keys_;
};

struct NewKey {
  std::string secret;
  std::string line;  // for the key file, without a newline
};
// Errors: a name that cannot stand in a key file.
api::Result<NewKey> MakeKey(std::string_view name, Role role, const KeyLimits& limits);

}  // namespace quire::server
