#include "server/registry/git_hash.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <memory>

namespace quire::server::registry {
namespace {

struct ContextFreed {
  void operator()(EVP_MD_CTX* context) const { ::EVP_MD_CTX_free(context); }
};

}  // namespace

std::string GitHashOf(std::string_view bytes) {
  const std::unique_ptr<EVP_MD_CTX, ContextFreed> context(::EVP_MD_CTX_new());
  std::string head = fmt::format("blob {}", bytes.size());
  head.push_back('\0');
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  if (context == nullptr || ::EVP_DigestInit_ex(context.get(), ::EVP_sha1(), nullptr) != 1 ||
      ::EVP_DigestUpdate(context.get(), head.data(), head.size()) != 1 ||
      ::EVP_DigestUpdate(context.get(), bytes.data(), bytes.size()) != 1 ||
      ::EVP_DigestFinal_ex(context.get(), digest.data(), &size) != 1) {
    return {};
  }
  std::string hex;
  for (unsigned i = 0; i < size; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

}  // namespace quire::server::registry
