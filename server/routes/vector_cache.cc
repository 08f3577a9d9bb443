#include "server/routes/vector_cache.h"

#include <fmt/format.h>

#include <utility>
#include <variant>

#include "server/store/sha256.h"

namespace quire::server {
namespace {

// What an entry takes beside its texts and numbers.
constexpr size_t kEntryBytes = 160;

void AddPart(std::string& all, std::string_view part) { all += fmt::format("{}:{}", part.size(), part); }

}  // namespace

std::string VectorCache::KeyOf(std::string_view model_digest, const api::Request& request) {
  const auto* embed = std::get_if<api::EmbedPrompt>(&request.prompt);
  if (embed == nullptr || model_digest.empty()) return {};
  std::string all;
  AddPart(all, request.client.IsolationKey());
  AddPart(all, model_digest);
  AddPart(all, fmt::format("{} {} {} {} {} {} {} {}", embed->dimensions, embed->normalize, embed->rank,
                           static_cast<int>(request.overflow), request.params.num_ctx,
                           embed->document_tokens_max, embed->keep_end, embed->prompt_required));
  AddPart(all, embed->prompt_name);
  AddPart(all, embed->instruction);
  AddPart(all, embed->text);
  AddPart(all, embed->document);
  for (const api::TokenId token : embed->tokens) all += fmt::format(" {}", token);
  return Sha256Of(all);
}

size_t VectorCache::BytesOf(const Entry& entry) {
  return kEntryBytes + entry.key.size() + entry.value.vector.size() * sizeof(float);
}

std::optional<CachedVector> VectorCache::Find(const std::string& key) {
  if (key.empty()) return std::nullopt;
  const std::lock_guard lock(mutex_);
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
  const std::lock_guard lock(mutex_);
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
  const std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace quire::server
