// The parts of a tokenizer, and the file formats that describe it.
#pragma once

#include <cstddef>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "api/base/ids.h"
#include "runner/tokenizer/added_tokens.h"
#include "runner/tokenizer/bpe.h"
#include "runner/tokenizer/normalizer.h"
#include "runner/tokenizer/pre_tokenizer.h"
#include "runner/tokenizer/subword_model.h"
#include "runner/tokenizer/text_frame.h"
#include "runner/tokenizer/text_steps.h"
#include "runner/tokenizer/tokenizer.h"
#include "runner/tokenizer/vocabulary.h"

namespace quire::runner::tokenizer {

struct TokenizerParts {
  Vocabulary vocabulary;
  AddedTokenFinder added;  // looked for in the text
  NormalForm normal_form = NormalForm::kNone;
  std::vector<TextStep> steps;        // the normalizer's, after it
  AddedTokenFinder added_normalized;  // looked for in what they gave
  std::vector<TextStep> word_steps;   // the pre-tokenizer's, for the text between
  AddedTokenFinder symbols;           // looked for in what these gave; none is special
  PreTokenizer pre_tokenizer;
  std::unique_ptr<const SubwordModel> model;
  api::TokenId bos = kNoToken;
  api::TokenId eos = kNoToken;
  bool add_bos = false;           // implies bos
  bool add_eos = false;           // implies eos
  bool add_bos_to_chats = false;  // implies add_bos
  LeadingSpaces leading_spaces = LeadingSpaces::kKeep;
  std::vector<api::TokenId> own_spaces;  // added tokens whose content has spaces
  PairFrame pair;
  std::vector<api::TokenId> ends = {};  // that the files name; Tokenizer adds the others
};

// Bounds on what a file may declare.
inline constexpr size_t kTokenBytesMax = size_t{1} << 20;
inline constexpr size_t kUnusedIdsMax = 65536;  // ids below the highest that no token has

// `ids_max`: tokens that only tokenizer_config.json knows get ids below it, or none.
api::Result<TokenizerParts> LoadTokenizerJson(std::string_view json,
                                              const nlohmann::ordered_json& tokenizer_config,
                                              api::TokenId ids_max);
api::Result<TokenizerParts> LoadGguf(const nlohmann::ordered_json& key_values);
api::Result<TokenizerParts> LoadSentencePieceModel(std::span<const std::byte> model,
                                                   const nlohmann::ordered_json& tokenizer_config);

// Sorts `token` into the finder it belongs to. One that is looked for in the normalized text is normalized
// itself, by the normal form and steps that `parts` has by now. kBadModel when its content is empty, too long
// or not UTF-8.
api::Result<void> AddToken(AddedToken token, TokenizerParts& parts);

}  // namespace quire::runner::tokenizer
