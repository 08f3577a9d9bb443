// Text to token ids and back, for one model.
//
// A text goes through: added tokens found verbatim -> Unicode normalization of the text between them ->
// steps that rewrite it (spaces to marks) -> the pre-tokenizer's pieces -> the subword model. Ids equal those
// of the Hugging Face tokenizer of the same files, or of SentencePiece where the two differ: a Unigram
// tokenizer.json must not spell special tokens in plain text.
//
// Trust: a special token (template markup such as <|im_end|>) is found only where all its bytes are trusted,
// so that nobody forges one by typing it. Added tokens that the model does not call special are ordinary
// vocabulary and are found everywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "api/base/ids.h"

namespace quire::runner::tokenizer {

using api::TokenId;

struct PairFrame;
struct TokenizerParts;

enum class SpecialTokens : uint8_t {
  kParse,   // the text is trusted
  kAsText,  // special tokens in it are plain text
};

// The treatment of spaces at the start of a decoded text. SentencePiece vocabularies put one before the
// first word when encoding. kDropMarks: those of the first token that its entry writes as marks.
enum class LeadingSpaces : uint8_t { kKeep, kDropOne, kDropAll, kDropMarks };

// A part of a prompt. Borders between segments are no borders for the tokens: the segments' texts count as
// one text.
struct Segment {
  std::string_view text;
  bool parse_special = false;  // trusted
};

// Immutable; any thread.
class Tokenizer {
 public:
  // From the text of a tokenizer.json, with the tokenizer_config.json beside it (null JSON when there is
  // none). Tokens that only the latter knows get ids below `ids_max`, or none. kBadModel names the field and
  // the reason, also for kinds of tokenizer that are not supported.
  static constexpr TokenId kNoIdsMax = INT32_MAX;
  static api::Result<std::shared_ptr<const Tokenizer>> FromTokenizerJson(
      std::string_view json, const nlohmann::ordered_json& tokenizer_config, TokenId ids_max = kNoIdsMax);
  // From the key/values of a GGUF file ("tokenizer.ggml.*"). Errors as above.
  static api::Result<std::shared_ptr<const Tokenizer>> FromGguf(const nlohmann::ordered_json& key_values);

  // From the bytes of a SentencePiece tokenizer.model, with the tokenizer_config.json beside it. Errors as
  // above.
  static api::Result<std::shared_ptr<const Tokenizer>> FromSentencePiece(
      std::span<const std::byte> model, const nlohmann::ordered_json& tokenizer_config);

  explicit Tokenizer(TokenizerParts parts);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // No BOS or EOS is added: see add_bos(). What is not UTF-8 counts as U+FFFD.
  // kTooLarge for 2^31 bytes and more, and for a piece of more than kPieceBytesMax. Memory while it works:
  // about 40 bytes per byte of the longest piece. kContextLengthExceeded: there are more than `tokens_max`
  // tokens; it stops there. Counts its work (runner/work).
  static constexpr size_t kPieceBytesMax = size_t{8} << 20;
  static constexpr size_t kNoTokensMax = SIZE_MAX;
  api::Result<std::vector<TokenId>> Encode(std::string_view text, SpecialTokens special,
                                           size_t tokens_max = kNoTokensMax) const;
  api::Result<std::vector<TokenId>> EncodeSegments(std::span<const Segment> segments,
                                                   size_t tokens_max = kNoTokensMax) const;

  // Whether the model wants bos_id() before a text (eos_id() after it) that is not rendered by a template.
  // True only if there is such a token.
  bool add_bos() const;
  bool add_eos() const;
  std::optional<TokenId> bos_id() const;
  std::optional<TokenId> eos_id() const;

  // Whether the prompt that a chat template renders gets BOS, too: GGUF files say so of every prompt. A
  // directory's template writes its own.
  bool add_bos_to_chats() const;

  // How two texts go together; without items where the model has no pairs.
  const PairFrame& pair_frame() const;

  // Highest id + 1; ids below it that the model does not use stand for nothing.
  int32_t vocab_size() const;
  // The bytes that a token adds to the text, special ones as they are written. They need not be UTF-8 alone.
  // Empty for ids that do not exist. Valid as long as the tokenizer.
  std::string_view TokenBytes(TokenId id) const;
  bool IsSpecial(TokenId id) const;
  // Tokens whose texts end an answer (published_markup.h), and EOS; ascending.
  std::span<const TokenId> ends() const;
  LeadingSpaces leading_spaces() const;
  // Whether spaces in the token's bytes are its own, and no marks of the vocabulary.
  bool HasOwnSpaces(TokenId id) const;

 private:
  std::unique_ptr<const TokenizerParts> parts_;
};

}  // namespace quire::runner::tokenizer
