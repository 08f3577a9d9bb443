// Small SentencePiece models for tests, written as the protocol buffer that a tokenizer.model is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runner/tokenizer/sentencepiece.h"

namespace quire::runner::tokenizer {

// One length-delimited, varint or float field of a message.
std::string ProtoBytes(unsigned field, std::string_view bytes);
std::string ProtoNumber(unsigned field, uint64_t value);
std::string ProtoFloat(unsigned field, float value);

struct MiniSentencePiece {
  uint64_t model_type = 2;  // 1 Unigram, 2 BPE
  std::vector<SentencePieceVocabulary::Entry> pieces;
  bool dummy_prefix = false;
  bool squash_spaces = false;
  std::string character_map = {};
};

std::string Serialize(const MiniSentencePiece& model);

// <unk> (0), <s> (1), </s> (2), a token for each byte (3 and up), then these.
std::vector<SentencePieceVocabulary::Entry> WithBytes(std::vector<SentencePieceVocabulary::Entry> pieces);

}  // namespace quire::runner::tokenizer
