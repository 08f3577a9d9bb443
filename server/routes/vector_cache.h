// Vectors and scores that were computed before: those of the same text, model, options and isolation key are
// bit-identical, so that they are given again. Of a bounded number of bytes, the least recently used go
// first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "api/base/mutex.h"
#include "api/base/request.h"
#include "api/openai/embedding.h"

namespace quire::server {

struct CachedVector {
  std::vector<float> vector;
  int32_t prompt_tokens = 0;
};

// The keys of one request's texts, for the model whose manifest has this digest; all are empty where that is.
// What all texts share is hashed once.
class VectorKeys {
 public:
  // `request`: what each text's request has beside its prompt.
  VectorKeys(std::string_view model_digest, const api::Request& request,
             const api::EmbedRequest::Shared& shared);

  std::string KeyOf(const api::EmbedPrompt& prompt) const;

 private:
  std::string shared_;  // the hash; empty: there are no keys
};

// Any thread.
class VectorCache {
 public:
  static constexpr size_t kBytes = size_t{64} << 20;
  explicit VectorCache(size_t bytes_max = kBytes) : bytes_max_(bytes_max) {}

  std::optional<CachedVector> Find(const std::string& key);
  void Store(const std::string& key, const CachedVector& value);

  struct Stats {
    uint64_t hits = 0, misses = 0;
    size_t bytes = 0;
  };
  Stats stats() const;

 private:
  struct Entry {
    std::string key;
    CachedVector value;
  };
  static size_t BytesOf(const Entry& entry);

  const size_t bytes_max_;
  mutable api::Mutex mutex_;
  std::list<Entry> entries_ GUARDED_BY(mutex_);  // newest first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> places_ GUARDED_BY(mutex_);
  Stats stats_ GUARDED_BY(mutex_);
};

}  // namespace quire::server
