// What a tokenizer is made of, and the two file formats that describe it.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "api/error.h"
#include "api/ids.h"
#include "runner/tokenizer/added_tokens.h"
#include "runner/tokenizer/bpe.h"
#include "runner/tokenizer/normalizer.h"
#include "runner/tokenizer/pre_tokenizer.h"
#include "runner/tokenizer/subword_model.h"
#include "runner/tokenizer/vocabulary.h"

namespace quire::runner::tokenizer {

struct TokenizerParts {
  Vocabulary vocabulary;
  AddedTokenFinder added;             // looked for in the text
  AddedTokenFinder added_normalized;  // looked for in the normalised text
  NormalForm normal_form = NormalForm::kNone;
  PreTokenizer pre_tokenizer;
  std::unique_ptr<const SubwordModel> model;
  api::TokenId bos = kNoToken;
  api::TokenId eos = kNoToken;
  bool add_bos = false;  // implies bos
  bool add_eos = false;  // implies eos
};

// Bounds on what a file may declare.
inline constexpr size_t kTokenBytesMax = size_t{1} << 20;
inline constexpr size_t kUnusedIdsMax = 65536;  // ids below the highest that no token has

api::Result<TokenizerParts> LoadTokenizerJson(std::string_view json,
                                              const nlohmann::ordered_json& tokenizer_config);
api::Result<TokenizerParts> LoadGguf(const nlohmann::ordered_json& key_values);

// Sorts `token` into the finder it belongs to. kBadModel when its content is empty, too long or not UTF-8.
api::Result<void> AddToken(AddedToken token, TokenizerParts& parts);

}  // namespace quire::runner::tokenizer
