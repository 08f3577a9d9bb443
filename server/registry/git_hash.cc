#include "server/registry/git_hash.h"

#include <fmt/ranges.h>
#include <openssl/evp.h>

#include <array>

namespace quire::server::registry {
std::string GitHashOf(std::string_view bytes) {
  const std::string blob = fmt::format("blob {}{}{}", bytes.size(), '\0', bytes);
  std::array<unsigned char, 20> digest{};
  if (EVP_Digest(blob.data(), blob.size(), digest.data(), nullptr, EVP_sha1(), nullptr) != 1) return {};
  return fmt::format("{:02x}", fmt::join(digest, ""));
}

}  // namespace quire::server::registry
