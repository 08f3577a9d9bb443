// Byte-pair encoding: a piece begins as single bytes (byte-level) or characters (SentencePiece), and
// neighbors merge in the order of the merge list, leftmost first among equals.
#pragma once

#include <array>
#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runner/tokenizer/subword_model.h"

namespace quire::runner::tokenizer {

inline constexpr api::TokenId kNoToken = -1;

struct Merge {
  api::TokenId left = 0;
  api::TokenId right = 0;
  api::TokenId merged = 0;
};

using CharacterTokens = boost::unordered_flat_map<char32_t, api::TokenId>;

struct BpeDefinition {
  std::array<api::TokenId, 256> byte_tokens{};  // kNoToken: `unknown` stands for it, or nothing does
  // Set: pieces begin as characters. One without a token is its bytes' tokens if all of them have one.
  std::optional<CharacterTokens> character_tokens;
  std::vector<Merge> merges;  // by rank; of two merges of one pair the later counts
  // [merges] Rank of each, the lowest merges first; empty: its position.
  std::vector<uint32_t> ranks;
  api::TokenId unknown = kNoToken;
  // Characters that only stand inside tokens: ids from `bare_begin` on while a piece merges, their bytes'
  // tokens after it.
  std::vector<std::string> bare_characters;
  api::TokenId bare_begin = 0;
  bool fuse_unknown = false;  // neighboring unknown bytes or characters are one token
  // Pieces that are one token whatever the merges say; empty for most vocabularies.
  std::vector<std::pair<std::string, api::TokenId>> whole_pieces;
};

class BpeModel final : public SubwordModel {
 public:
  explicit BpeModel(BpeDefinition definition);
  ~BpeModel() override;

  void Encode(std::string_view piece, std::vector<api::TokenId>& ids) const override;

 private:
  struct Tables;
  std::unique_ptr<const Tables> tables_;
};

}  // namespace quire::runner::tokenizer
