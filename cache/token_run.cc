#include "cache/token_run.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "cache/check.h"

namespace quire::cache {
namespace {

// Two neighbors are copied into one piece while they are this short together.
constexpr size_t kJoinUpTo = 256;
constexpr size_t kBlock = 64;

size_t CommonPrefixOf(const TokenId* a, const TokenId* b, size_t size) {
  size_t i = 0;
  while (i + kBlock <= size && std::memcmp(a + i, b + i, kBlock * sizeof(TokenId)) == 0) i += kBlock;
  while (i < size && a[i] == b[i]) ++i;
  return i;
}

}  // namespace

TokenRun::TokenRun(std::span<const TokenId> tokens) : size_(tokens.size()) {
  for (size_t at = 0; at < tokens.size(); at += kChunk) {
    const size_t size = std::min(kChunk, tokens.size() - at);
    auto chunk = std::make_shared_for_overwrite<TokenId[]>(size);
    std::ranges::copy(tokens.subspan(at, size), chunk.get());
    pieces_.push_back({std::move(chunk), 0, size});
  }
}

TokenId TokenRun::operator[](size_t i) const {
  QUIRE_CACHE_CHECK(i < size_);
  auto piece = pieces_.begin();
  for (; i >= piece->size; ++piece) i -= piece->size;
  return piece->data()[i];
}

TokenRun TokenRun::First(size_t count) const {
  QUIRE_CACHE_CHECK(count <= size_);
  TokenRun first;
  first.size_ = count;
  for (auto piece = pieces_.begin(); count > 0; ++piece) {
    const size_t size = std::min(count, piece->size);
    first.pieces_.push_back({piece->chunk, piece->begin, size});
    count -= size;
  }
  return first;
}

void TokenRun::DropFirst(size_t count) noexcept {
  QUIRE_CACHE_CHECK(count <= size_);
  size_ -= count;
  while (count > 0) {
    Piece& front = pieces_.front();
    const size_t size = std::min(count, front.size);
    front.begin += size;
    front.size -= size;
    count -= size;
    if (front.size == 0) pieces_.pop_front();
  }
}

TokenRun TokenRun::Last(size_t count) const {
  QUIRE_CACHE_CHECK(count <= size_);
  TokenRun last;
  last.size_ = count;
  for (auto piece = pieces_.rbegin(); count > 0; ++piece) {
    const size_t size = std::min(count, piece->size);
    last.pieces_.push_front({piece->chunk, piece->begin + piece->size - size, size});
    count -= size;
  }
  return last;
}

void TokenRun::DropLast(size_t count) noexcept {
  QUIRE_CACHE_CHECK(count <= size_);
  size_ -= count;
  while (count > 0) {
    const size_t size = std::min(count, pieces_.back().size);
    pieces_.back().size -= size;
    count -= size;
    if (pieces_.back().size == 0) pieces_.pop_back();
  }
}

// Makes one piece of two neighbors where they are one already, or are short. Without memory they stay two.
bool TokenRun::Join(Piece& last, const Piece& next) noexcept {
  if (last.chunk == next.chunk && last.begin + last.size == next.begin) {
    last.size += next.size;
    return true;
  }
  if (last.size + next.size > kJoinUpTo) return false;
  try {
    auto chunk = std::make_shared_for_overwrite<TokenId[]>(last.size + next.size);
    std::copy_n(last.data(), last.size, chunk.get());
    std::copy_n(next.data(), next.size, chunk.get() + last.size);
    last = {std::move(chunk), 0, last.size + next.size};
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void TokenRun::Append(TokenRun tail) noexcept {
  size_ += tail.size_;
  const bool meet = !pieces_.empty() && !tail.pieces_.empty();
  if (meet && Join(pieces_.back(), tail.pieces_.front())) tail.pieces_.pop_front();
  pieces_.splice(pieces_.end(), tail.pieces_);
}

size_t TokenRun::CommonPrefix(std::span<const TokenId> tokens) const {
  size_t at = 0;
  for (const Piece& piece : pieces_) {
    const size_t size = std::min(piece.size, tokens.size() - at);
    const size_t same = CommonPrefixOf(piece.data(), tokens.data() + at, size);
    at += same;
    if (same < piece.size) break;
  }
  return at;
}

void TokenRun::AppendTo(std::vector<TokenId>* tokens) const {
  for (const Piece& piece : pieces_) {
    tokens->insert(tokens->end(), piece.data(), piece.data() + piece.size);
  }
}

}  // namespace quire::cache
