// How sentence-transformers treats a text before it embeds it, as a model's directory says: prefixes
// (config_sentence_transformers.json), lowercase and length (sentence_bert_config.json,
// tokenizer_config.json).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "api/base/error.h"
#include "runner/weights/model_files.h"

namespace quire::runner::engine {

// Immutable; any thread.
class SentenceSettings {
 public:
  SentenceSettings() = default;
  // Texts of config_sentence_transformers.json and sentence_bert_config.json; empty: there is none.
  // `model_max_length`: of tokenizer_config.json, 0 where it limits nothing.
  SentenceSettings(const std::string& prompts, const std::string& transformer, int32_t model_max_length);
  // A decoder that generates is limited by model_max_length only if modules.json makes it one that embeds.
  static SentenceSettings Of(const weights::ModelFiles& files);

  // kBadModel with the file and the key, where one of the texts is invalid: then the vectors would not be the
  // model's.
  api::Result<void> Check() const;

  // The prefix called `name` without regard to case, or the model's default one where `name` is empty.
  // "query" and "search_query" are one, and so are "document", "passage" and "search_document", which have no
  // prefix where only others are defined. "none" is no prefix, unless it is defined. A name that is not
  // defined: with `required` kUnsupported, otherwise no prefix. kBadModel as Check.
  api::Result<std::string> Prefix(const std::string& name, bool required) const;

  // The text as the tokenizer gets it. REQUIRES: valid UTF-8.
  std::string Normalize(std::string_view text) const;

  // Tokens of a text, with BOS and EOS, in a context of `num_ctx`: the rest is cut.
  int32_t TokensMax(int32_t num_ctx) const;

 private:
  void ReadPrompts(const std::string& text);
  void ReadTransformer(const std::string& text);

  std::map<std::string, std::string> prefixes_;  // by lower-case name
  std::string default_prefix_;
  std::string problem_;  // with the file; or empty
  bool lowercase_ = false;
  int32_t tokens_max_ = 0;  // 0: no limit
};

}  // namespace quire::runner::engine
