#include "server/tier/keys.h"

#include <fmt/ranges.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <new>
#include <utility>

namespace quire::server {
namespace {

std::string_view TextOf(const SnapshotKey& key) {
  return {reinterpret_cast<const char*>(key.data()), key.size()};
}

}  // namespace

SnapshotKey HmacOf(const SnapshotKey& secret, std::string_view text) {
  SnapshotKey key{};
  unsigned int length = 0;
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  if (HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), bytes, text.size(), key.data(),
           &length) == nullptr) {
    throw std::bad_alloc();
  }
  return key;
}

SnapshotKey HashOf(std::string_view text) {
  api::Sha256 hash;
  hash.Update(text);
  return hash.FinishBytes();
}

std::string HexOf(const SnapshotKey& key) { return fmt::format("{:02x}", fmt::join(key, "")); }

KeyChain::KeyChain(const SnapshotKey& begin, std::vector<int32_t> tokens, int64_t segment_tokens)
    : tokens_(std::move(tokens)), segment_tokens_(segment_tokens), whole_{begin} {
  whole_.reserve(tokens_.size() / static_cast<size_t>(segment_tokens) + 1);
  for (int64_t to = segment_tokens_; to <= this->tokens(); to += segment_tokens_) {
    api::Sha256 hash;
    hash.Update(TextOf(whole_.back()));
    hash.Update(BytesOf(to - segment_tokens_, to));
    whole_.push_back(hash.FinishBytes());
  }
}

std::string_view KeyChain::BytesOf(int64_t from, int64_t to) const {
  const auto* first = reinterpret_cast<const char*>(tokens_.data() + from);
  return {first, static_cast<size_t>(to - from) * sizeof(int32_t)};
}

SnapshotKey KeyChain::Prefix(int64_t to) const {
  const SnapshotKey& before = whole_[static_cast<size_t>(to / segment_tokens_)];
  const int64_t from = to - to % segment_tokens_;
  if (from == to) return before;
  api::Sha256 hash;
  hash.Update(TextOf(before));
  hash.Update(BytesOf(from, to));
  return hash.FinishBytes();
}

std::vector<PrefixPiece> KeyChain::Pieces(int64_t from, int64_t to, bool needs_state) const {
  std::vector<PrefixPiece> pieces;
  pieces.reserve(static_cast<size_t>((to - from) / segment_tokens_ + 2));
  for (; from < to; from += segment_tokens_) {
    const int64_t end = std::min(from + segment_tokens_, to);
    pieces.push_back({from, end, false, Object(end, false)});
  }
  if (needs_state) pieces.push_back({to, to, true, Object(to, true)});
  return pieces;
}

SnapshotKey ObjectKey(const SnapshotKey& prefix, bool state) {
  api::Sha256 hash;
  hash.Update(state ? "state" : "tokens");
  hash.Update(TextOf(prefix));
  return hash.FinishBytes();
}

}  // namespace quire::server
