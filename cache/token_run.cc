#include "cache/token_run.h"

#include <algorithm>
#include <cstring>
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

TokenRun TokenRun::PopFront(size_t count) {
  QUIRE_CACHE_CHECK(count <= size_);
  TokenRun front;
  front.size_ = count;
  size_ -= count;
  size_t whole = 0;
  for (; whole < pieces_.size() && pieces_[whole].size <= count; ++whole) count -= pieces_[whole].size;
  const auto end = pieces_.begin() + static_cast<std::ptrdiff_t>(whole);
  front.pieces_.reserve(whole + 1);
  front.pieces_.assign(std::make_move_iterator(pieces_.begin()), std::make_move_iterator(end));
  pieces_.erase(pieces_.begin(), end);
  if (count > 0) {
    Piece& cut = pieces_.front();
    front.pieces_.push_back({cut.chunk, cut.begin, count});
    cut.begin += count;
    cut.size -= count;
  }
  return front;
}

TokenRun TokenRun::Last(size_t count) const {
  QUIRE_CACHE_CHECK(count <= size_);
  TokenRun last;
  last.size_ = count;
  for (auto piece = pieces_.rbegin(); count > 0; ++piece) {
    const size_t size = std::min(count, piece->size);
    last.pieces_.insert(last.pieces_.begin(), {piece->chunk, piece->begin + piece->size - size, size});
    count -= size;
  }
  return last;
}

void TokenRun::DropLast(size_t count) {
  QUIRE_CACHE_CHECK(count <= size_);
  size_ -= count;
  while (count > 0) {
    const size_t size = std::min(count, pieces_.back().size);
    pieces_.back().size -= size;
    count -= size;
    if (pieces_.back().size == 0) pieces_.pop_back();
  }
}

void TokenRun::Append(TokenRun tail) {
  size_ += tail.size_;
  if (pieces_.empty()) {
    pieces_ = std::move(tail.pieces_);
    return;
  }
  auto next = tail.pieces_.begin();
  if (next != tail.pieces_.end()) {
    Piece& last = pieces_.back();
    if (last.chunk == next->chunk && last.begin + last.size == next->begin) {
      last.size += (next++)->size;
    } else if (last.size + next->size <= kJoinUpTo) {
      auto chunk = std::make_shared_for_overwrite<TokenId[]>(last.size + next->size);
      std::copy_n(last.data(), last.size, chunk.get());
      std::copy_n(next->data(), next->size, chunk.get() + last.size);
      last = {std::move(chunk), 0, last.size + next->size};
      ++next;
    }
  }
  pieces_.insert(pieces_.end(), std::make_move_iterator(next), std::make_move_iterator(tail.pieces_.end()));
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
