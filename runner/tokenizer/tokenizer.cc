#include "runner/tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "api/base/utf8.h"
#include "runner/tokenizer/parts.h"
#include "runner/tokenizer/published_markup.h"
#include "runner/work/work_budget.h"

namespace quire::runner::tokenizer {
namespace {

constexpr size_t kTextBytesMax = std::numeric_limits<int32_t>::max();

// Remembers where in the output the ids of short pieces lie, so that a repeated word is a copy.
class PieceCache {
 public:
  struct Slot {
    std::string_view piece;
    size_t begin = 0;
    size_t count = 0;
  };
  static bool Accepts(std::string_view piece) { return piece.size() >= 2 && piece.size() <= 64; }
  Slot& At(std::string_view piece) {
    if (slots_.empty()) slots_.resize(kSlots);
    return slots_[std::hash<std::string_view>()(piece) % kSlots];
  }

 private:
  static constexpr size_t kSlots = 1024;
  std::vector<Slot> slots_;
};

// One call of Encode.
class Encoder {
 public:
  Encoder(const TokenizerParts& parts, size_t tokens_max) : parts_(parts), tokens_max_(tokens_max) {}

  api::Result<std::vector<TokenId>> Run(const TrustedText& text) {
    CountWork(text.text.size() / 8);
    ids_.reserve(std::min(text.text.size() / 3, tokens_max_) + 8);
    for (const Stretch& stretch : parts_.added.Find(text)) {
      if (Stopped()) break;
      const Before before = stretch.begin == 0 ? Before::kNothing : Before::kToken;
      if (stretch.token) {
        ids_.push_back(*stretch.token);
      } else if (parts_.added_normalized.empty()) {
        const size_t size = stretch.end - stretch.begin;
        Words(Normalized(text.text.substr(stretch.begin, size), before), before);
      } else {
        FindNormalized(text.Slice(stretch.begin, stretch.end), before);
      }
    }
    if (long_piece_) {
      return api::Fail(
          api::ErrorCode::kTooLarge,
          fmt::format("a run of text without a break has more than {} bytes", Tokenizer::kPieceBytesMax));
    }
    if (ids_.size() > tokens_max_) {
      return api::Fail(api::ErrorCode::kContextLengthExceeded,
                       fmt::format("more than {} tokens", tokens_max_));
    }
    return std::move(ids_);
  }

 private:
  bool Stopped() const { return long_piece_ || ids_.size() > tokens_max_; }

  std::string_view Store(std::string text) { return stored_.emplace_back(std::move(text)); }

  std::string_view Normalized(std::string_view text, Before before) {
    if (MayChange(parts_.normal_form, text)) text = Store(Normalize(parts_.normal_form, text));
    return parts_.steps.empty() ? text : Store(Apply(parts_.steps, text, before));
  }

  void FindNormalized(const TrustedText& text, Before before) {
    const TrustedText normalized = NormalizedRuns(text, before);
    for (const Stretch& stretch : parts_.added_normalized.Find(normalized)) {
      if (stretch.token) {
        ids_.push_back(*stretch.token);
      } else {
        Words(normalized.text.substr(stretch.begin, stretch.end - stretch.begin),
              stretch.begin == 0 ? before : Before::kToken);
      }
    }
  }

  // Trust carries over where normalizing run by run gives the same text; else a character is made of both
  // trusted and other bytes, and nothing of the text counts as trusted.
  TrustedText NormalizedRuns(const TrustedText& text, Before before) {
    if (parts_.steps.empty() && !MayChange(parts_.normal_form, text.text)) return text;
    TrustedText normalized{.text = Normalized(text.text, before), .runs = {}};
    std::string by_run;
    size_t begin = 0;
    for (const TrustedText::Run& run : text.runs) {
      by_run += Apply(parts_.steps, Normalize(parts_.normal_form, text.text.substr(begin, run.end - begin)),
                      begin == 0 ? before : Before::kSameStretch);
      normalized.AddRun(by_run.size(), run.trusted);
      begin = run.end;
    }
    if (by_run != normalized.text) normalized.runs = {{.end = normalized.text.size(), .trusted = false}};
    return normalized;
  }

  void Words(std::string_view text, Before before) {
    if (!parts_.word_steps.empty()) text = Store(Apply(parts_.word_steps, text, before));
    if (parts_.symbols.empty()) return Pieces(text);
    for (const Stretch& stretch : parts_.symbols.Find({.text = text, .runs = {}})) {
      if (stretch.token) {
        ids_.push_back(*stretch.token);
      } else {
        Pieces(text.substr(stretch.begin, stretch.end - stretch.begin));
      }
    }
  }

  void Pieces(std::string_view text) {
    if (text.empty()) return;
    if (parts_.pre_tokenizer.add_prefix_space && text.front() != ' ') text = Store(" " + std::string(text));
    for (const Piece& piece : parts_.pre_tokenizer.Split(text, matcher_)) {
      if (Stopped()) return;
      EncodePiece(text.substr(piece.begin, piece.end - piece.begin));
    }
  }

  void EncodePiece(std::string_view piece) {
    CountWork(2 + piece.size() / 8);
    if (piece.size() > Tokenizer::kPieceBytesMax) {
      long_piece_ = true;
      return;
    }
    if (!PieceCache::Accepts(piece)) return parts_.model->Encode(piece, ids_);
    PieceCache::Slot& slot = cache_.At(piece);
    const size_t begin = ids_.size();
    if (slot.piece == piece) {
      for (size_t i = 0; i < slot.count; ++i) ids_.push_back(TokenId{ids_[slot.begin + i]});
      return;
    }
    parts_.model->Encode(piece, ids_);
    slot = {.piece = piece, .begin = begin, .count = ids_.size() - begin};
  }

  const TokenizerParts& parts_;
  const size_t tokens_max_;
  bool long_piece_ = false;  // a piece was too long
  RegexMatcher matcher_;
  PieceCache cache_;
  std::deque<std::string> stored_;  // texts that pieces in the cache point into
  std::vector<TokenId> ids_;
};

std::optional<TokenId> IfAny(TokenId id) { return id == kNoToken ? std::nullopt : std::optional(id); }

api::Result<std::shared_ptr<const Tokenizer>> Make(api::Result<TokenizerParts> parts) {
  if (!parts) return std::unexpected(std::move(parts.error()));
  return std::make_shared<const Tokenizer>(*std::move(parts));
}

}  // namespace

api::Result<std::shared_ptr<const Tokenizer>> Tokenizer::FromTokenizerJson(
    std::string_view json, const nlohmann::ordered_json& tokenizer_config, TokenId ids_max) {
  return Make(LoadTokenizerJson(json, tokenizer_config, ids_max));
}

api::Result<std::shared_ptr<const Tokenizer>> Tokenizer::FromGguf(const nlohmann::ordered_json& key_values) {
  return Make(LoadGguf(key_values));
}

api::Result<std::shared_ptr<const Tokenizer>> Tokenizer::FromSentencePiece(
    std::span<const std::byte> model, const nlohmann::ordered_json& tokenizer_config) {
  return Make(LoadSentencePieceModel(model, tokenizer_config));
}

Tokenizer::Tokenizer(TokenizerParts parts) {
  std::ranges::copy(EndsOf(parts.vocabulary), std::back_inserter(parts.ends));
  if (parts.eos != kNoToken) parts.ends.push_back(parts.eos);
  std::ranges::sort(parts.ends);
  parts.ends.erase(std::ranges::unique(parts.ends).begin(), parts.ends.end());
  std::ranges::sort(parts.own_spaces);
  parts_ = std::make_unique<const TokenizerParts>(std::move(parts));
}
Tokenizer::~Tokenizer() = default;

api::Result<std::vector<TokenId>> Tokenizer::Encode(std::string_view text, SpecialTokens special,
                                                    size_t tokens_max) const {
  const std::array segments{Segment{.text = text, .parse_special = special == SpecialTokens::kParse}};
  return EncodeSegments(segments, tokens_max);
}

api::Result<std::vector<TokenId>> Tokenizer::EncodeSegments(std::span<const Segment> segments,
                                                            size_t tokens_max) const {
  size_t bytes = 0;
  for (const Segment& segment : segments) {
    if (segment.text.size() > kTextBytesMax - bytes) {
      return api::Fail(api::ErrorCode::kTooLarge, fmt::format("text of more than {} bytes", kTextBytesMax));
    }
    bytes += segment.text.size();
  }
  std::string joined;
  TrustedText text;
  if (segments.size() == 1) {
    text.text = segments[0].text;
  } else {
    joined.reserve(bytes);
    for (const Segment& segment : segments) joined += segment.text;
    text.text = joined;
  }
  const bool valid = api::IsValidUtf8(text.text);
  std::string repaired;
  size_t end = 0;
  for (const Segment& segment : segments) {
    if (valid) {
      end += segment.text.size();
    } else {
      repaired += api::ReplaceInvalidUtf8(segment.text);
      end = repaired.size();
    }
    text.AddRun(end, segment.parse_special);
  }
  if (!valid) text.text = repaired;
  return Encoder(*parts_, tokens_max).Run(text);
}

bool Tokenizer::add_bos() const { return parts_->add_bos; }
bool Tokenizer::add_bos_to_chats() const { return parts_->add_bos_to_chats; }
bool Tokenizer::add_eos() const { return parts_->add_eos; }
std::optional<TokenId> Tokenizer::bos_id() const { return IfAny(parts_->bos); }
std::optional<TokenId> Tokenizer::eos_id() const { return IfAny(parts_->eos); }
const PairFrame& Tokenizer::pair_frame() const { return parts_->pair; }
int32_t Tokenizer::vocab_size() const { return parts_->vocabulary.size(); }
std::string_view Tokenizer::TokenBytes(TokenId id) const { return parts_->vocabulary.Bytes(id); }
bool Tokenizer::IsSpecial(TokenId id) const { return parts_->vocabulary.IsSpecial(id); }
std::span<const TokenId> Tokenizer::ends() const { return parts_->ends; }
bool Tokenizer::HasOwnSpaces(TokenId id) const { return std::ranges::binary_search(parts_->own_spaces, id); }
LeadingSpaces Tokenizer::leading_spaces() const { return parts_->leading_spaces; }

}  // namespace quire::runner::tokenizer
