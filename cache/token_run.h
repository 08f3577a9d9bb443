// An immutable run of token ids that is cut and joined without copying it.
//
// Tokens live in shared chunks of at most kChunk; a run is a list of slices of chunks. Cutting and joining
// move slice handles, one per chunk, and need no memory, but for First and Last; joining copies at most the
// two slices that meet, and only while together they are short. A slice keeps its whole chunk, 64 KiB at
// most: little beside the KV of a single token. Engine thread only.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "cache/types.h"

namespace quire::cache {

class TokenRun {
 public:
  static constexpr size_t kChunk = 16384;

  TokenRun() = default;
  explicit TokenRun(std::span<const TokenId> tokens);

  size_t size() const { return size_; }
  TokenId operator[](size_t i) const;
  // A run of the first `count` tokens, sharing them. REQUIRES: count <= size().
  TokenRun First(size_t count) const;
  void DropFirst(size_t count) noexcept;  // REQUIRES: count <= size()
  // A run of the last `count` tokens, sharing them. REQUIRES: count <= size().
  TokenRun Last(size_t count) const;
  void DropLast(size_t count) noexcept;  // REQUIRES: count <= size()
  void Append(TokenRun tail) noexcept;
  // Length of the longest common prefix.
  size_t CommonPrefix(std::span<const TokenId> tokens) const;
  void AppendTo(std::vector<TokenId>* tokens) const;

 private:
  struct Piece {
    const TokenId* data() const { return chunk.get() + begin; }

    std::shared_ptr<const TokenId[]> chunk;
    size_t begin;
    size_t size;
  };
  static bool Join(Piece& last, const Piece& next) noexcept;
  std::list<Piece> pieces_;
  size_t size_ = 0;
};

}  // namespace quire::cache
