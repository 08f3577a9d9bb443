#include "server/routes/vector_cache.h"

#include <fmt/format.h>

#include <utility>

#include "api/base/sha256.h"

namespace quire::server {
namespace {

// What an entry takes beside its texts and numbers.
constexpr size_t kEntryBytes = 160;

void AddPart(api::Sha256& hash, std::string_view part) {
  hash.Update(fmt::format("{}:", part.size()));
  hash.Update(part);
}

std::string_view BytesOf(const std::vector<api::TokenId>& tokens) {
  return {reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(api::TokenId)};
}

}  // namespace

VectorKeys::VectorKeys(std::string_view model_digest, const api::Request& request,
                       const api::EmbedRequest::Shared& shared) {
  if (model_digest.empty()) return;
  api::Sha256 hash;
  AddPart(hash, request.client.IsolationKey());
  AddPart(hash, model_digest);
  AddPart(hash, fmt::format("{} {}", static_cast<int>(request.overflow), request.params.num_ctx));
  AddPart(hash, shared.query);
  AddPart(hash, shared.instruction);
  AddPart(hash, shared.prompt_name);
  shared_ = hash.Finish();
}

std::string VectorKeys::KeyOf(const api::EmbedPrompt& prompt) const {
  if (shared_.empty()) return {};
  api::Sha256 hash;
  AddPart(hash, shared_);
  AddPart(hash, fmt::format("{} {} {} {} {} {}", prompt.dimensions, prompt.normalize, prompt.rank,
                            prompt.document_tokens_max, prompt.keep_end, prompt.prompt_required));
  AddPart(hash, prompt.prompt_name);
  AddPart(hash, prompt.instruction);
  AddPart(hash, prompt.text);
  AddPart(hash, prompt.document);
  AddPart(hash, BytesOf(prompt.tokens));
  return hash.Finish();
}

size_t VectorCache::BytesOf(const Entry& entry) {
  return kEntryBytes + entry.key.size() + entry.value.vector.size() * sizeof(float);
}

std::optional<CachedVector> VectorCache::Find(const std::string& key) {
  if (key.empty()) return std::nullopt;
  const api::MutexLock lock(mutex_);
  const auto place = places_.find(key);
  if (place == places_.end()) {
    ++stats_.misses;
    return std::nullopt;
  }
  ++stats_.hits;
  entries_.splice(entries_.begin(), entries_, place->second);
  return place->second->value;
}

void VectorCache::Store(const std::string& key, const CachedVector& value) {
  Entry entry{key, value};
  const size_t bytes = BytesOf(entry);
  const api::MutexLock lock(mutex_);
  if (key.empty() || bytes > bytes_max_ || places_.contains(key)) return;
  entries_.push_front(std::move(entry));
  places_.emplace(entries_.front().key, entries_.begin());
  stats_.bytes += bytes;
  while (stats_.bytes > bytes_max_) {
    stats_.bytes -= BytesOf(entries_.back());
    places_.erase(entries_.back().key);
    entries_.pop_back();
  }
}

VectorCache::Stats VectorCache::stats() const {
  const api::MutexLock lock(mutex_);
  return stats_;
}

}  // namespace quire::server
