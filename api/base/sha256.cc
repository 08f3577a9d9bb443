#include "api/base/sha256.h"

#include <fmt/ranges.h>
#include <openssl/evp.h>

#include <new>

namespace quire::api {

struct Sha256::Context {
  EVP_MD_CTX* evp = EVP_MD_CTX_new();
  ~Context() { EVP_MD_CTX_free(evp); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  // Fails for lack of memory only.
  if (context_->evp == nullptr || EVP_DigestInit_ex(context_->evp, EVP_sha256(), nullptr) != 1) {
    throw std::bad_alloc();
  }
}

Sha256::~Sha256() = default;

void Sha256::Update(std::string_view bytes) { EVP_DigestUpdate(context_->evp, bytes.data(), bytes.size()); }

Sha256::Digest Sha256::FinishBytes() {
  Digest digest{};
  EVP_DigestFinal_ex(context_->evp, digest.data(), nullptr);
  return digest;
}

std::string Sha256::Finish() { return fmt::format("{:02x}", fmt::join(FinishBytes(), "")); }

std::string Sha256Of(std::string_view bytes) {
  Sha256 hash;
  hash.Update(bytes);
  return hash.Finish();
}

}  // namespace quire::api
