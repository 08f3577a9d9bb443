#include "runner/tokenizer/sentencepiece.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/unordered/unordered_flat_map.hpp>
#include <cmath>
#include <string>
#include <utility>

#include "api/base/utf8.h"
#include "runner/tokenizer/byte_tokens.h"
#include "runner/tokenizer/unigram.h"

namespace quire::runner::tokenizer {
namespace {

using api::TokenId;
using Entry = SentencePieceVocabulary::Entry;
using Algorithm = SentencePieceVocabulary::Algorithm;
using Status = api::Result<void>;

std::unexpected<api::Error> Bad(size_t id, std::string_view reason) {
  return api::Fail(api::ErrorCode::kBadModel, fmt::format("piece {}: {}", id, reason));
}

class Builder {
 public:
  Builder(SentencePieceVocabulary vocabulary, TokenizerParts& parts)
      : vocabulary_(std::move(vocabulary)), parts_(parts) {
    byte_tokens_.fill(kNoToken);
  }

  Status Run() {
    for (const auto phase :
         {&Builder::Steps, &Builder::AddedEntries, &Builder::Entries, &Builder::Model, &Builder::Markers}) {
      if (auto done = (this->*phase)(); !done) return done;
    }
    return {};
  }

 private:
  Status Steps() {
    if (!vocabulary_.character_map.empty()) {
      auto map = CharacterMap::Parse(vocabulary_.character_map);
      if (!map) return api::Fail(api::ErrorCode::kBadModel, "precompiled charsmap: " + map.error().message);
      parts_.steps.emplace_back(std::make_shared<const CharacterMap>(*std::move(map)));
    }
    if (vocabulary_.remove_extra_whitespaces) parts_.steps.emplace_back(SquashSpaces{});
    parts_.steps.emplace_back(Replace{.from = " ", .to = std::string(kSpaceMark)});
    if (vocabulary_.add_dummy_prefix) parts_.steps.emplace_back(Prepend{std::string(kSpaceMark)});
    if (vocabulary_.remove_extra_whitespaces) {
      parts_.leading_spaces = LeadingSpaces::kDropAll;
    } else if (vocabulary_.add_dummy_prefix) {
      parts_.leading_spaces = LeadingSpaces::kDropOne;
    }
    return {};
  }

  // Where merges make the pieces, a longer one that no merge makes is an added token, which llama.cpp's
  // converter for Gemma 4 calls normal: "<td>".
  Status AddedEntries() {
    if (vocabulary_.algorithm != Algorithm::kBpeByMerges) return {};
    std::vector<bool> made(vocabulary_.entries.size());
    for (const Merge& merge : vocabulary_.merges) made[static_cast<size_t>(merge.merged)] = true;
    for (size_t i = 0; i < made.size(); ++i) {
      Entry& entry = vocabulary_.entries[i];
      if (made[i] || entry.type != TokenType::kNormal || entry.text.empty()) continue;
      if (!api::IsValidUtf8(entry.text) || api::CodePointAt(entry.text).bytes == entry.text.size()) continue;
      if (entry.text.size() > kAddedTokenBytesMax) continue;
      const bool markup = entry.text.front() == '<' && entry.text.back() == '>' &&
                          entry.text.find_first_of("_|") != std::string_view::npos;
      entry.type = markup ? TokenType::kControl : TokenType::kUserDefined;
    }
    return {};
  }

  Status Entries() {
    if (vocabulary_.entries.empty()) return api::Fail(api::ErrorCode::kBadModel, "no pieces");
    id_of_.reserve(vocabulary_.entries.size());
    for (size_t i = 0; i < vocabulary_.entries.size(); ++i) {
      if (auto done = AddEntry(i); !done) return done;
    }
    parts_.pre_tokenizer.cut_words = words_.words_stand_alone();
    return {};
  }

  Status AddEntry(size_t index) {
    const Entry& entry = vocabulary_.entries[index];
    const auto id = static_cast<TokenId>(index);
    if (!std::isfinite(entry.score)) return Bad(index, "its score is not a number");
    switch (entry.type) {
      case TokenType::kByte: {
        const auto byte = ByteOfEntry(entry.text);
        if (!byte) return Bad(index, "not a byte");
        const char text = static_cast<char>(*byte);
        parts_.vocabulary.Set(id, {&text, 1}, false);
        if (byte_tokens_[*byte] == kNoToken) byte_tokens_[*byte] = id;
        return {};
      }
      case TokenType::kUnknown:
        unknown_ = id;
        [[fallthrough]];
      case TokenType::kControl:
        return AddSpecial(index);
      case TokenType::kUserDefined:
        parts_.vocabulary.Set(id, WithoutSpaceMarks(entry.text), false);
        return AddSymbol(index);
      case TokenType::kUnused:
        parts_.vocabulary.Set(id, WithoutSpaceMarks(entry.text), false);
        return {};
      case TokenType::kNormal:
        return AddNormal(index);
    }
    return Bad(index, "not a type of token");
  }

  Status AddSpecial(size_t index) {
    const Entry& entry = vocabulary_.entries[index];
    const auto id = static_cast<TokenId>(index);
    const bool unknown = entry.type == TokenType::kUnknown;
    parts_.vocabulary.Set(id, unknown ? vocabulary_.unknown_surface.value_or(entry.text) : entry.text, true);
    if (entry.text.empty()) return {};  // a place in the list that nothing can spell
    AddedToken token{.id = id,
                     .content = std::string(entry.text),
                     .special = true,
                     .lstrip = entry.lstrip,
                     .rstrip = entry.rstrip};
    auto done = AddToken(std::move(token), parts_);
    if (!done) return Bad(index, done.error().message);
    return {};
  }

  Status AddSymbol(size_t index) {
    const Entry& entry = vocabulary_.entries[index];
    if (entry.text.empty() || entry.text.size() > kAddedTokenBytesMax || !api::IsValidUtf8(entry.text)) {
      return Bad(index, "a user-defined symbol that is empty, too long or not UTF-8");
    }
    const auto id = static_cast<TokenId>(index);
    if (vocabulary_.symbols == SentencePieceVocabulary::Symbols::kRewrittenText) {
      parts_.symbols.Add({.id = id, .content = std::string(entry.text)});
    } else if (vocabulary_.add_dummy_prefix) {
      parts_.added.Add({.id = id, .content = WithoutSpaceMarks(entry.text)});
    } else {
      // As in directories of Gemma: runs of marks that the text itself has first, then runs of its spaces.
      parts_.added.Add({.id = id, .content = WithSpaceMarks(entry.text)});
      parts_.symbols.Add({.id = id, .content = WithSpaceMarks(entry.text)});
    }
    return {};
  }

  Status AddNormal(size_t index) {
    const Entry& entry = vocabulary_.entries[index];
    const auto id = static_cast<TokenId>(index);
    parts_.vocabulary.Set(id, WithoutSpaceMarks(entry.text), false);
    if (entry.text.size() > kUnigramTextBytesMax) {
      return Bad(index, fmt::format("longer than {} bytes", kUnigramTextBytesMax));
    }
    if (entry.text.empty() || !api::IsValidUtf8(entry.text)) return {};  // no text holds it
    id_of_.emplace(entry.text, id);
    words_.Add(entry.text);
    // Gemma 4's converter calls its runs of marks normal.
    const bool run_of_marks = entry.text.size() > kSpaceMark.size() &&
                              WithoutSpaceMarks(entry.text).find_first_not_of(' ') == std::string::npos;
    if (run_of_marks && vocabulary_.algorithm == Algorithm::kBpeByMerges)
      parts_.added.Add({.id = id, .content = std::string(entry.text)});
    return {};
  }

  Status Model() {
    if (vocabulary_.algorithm == Algorithm::kUnigram) {
      UnigramDefinition definition{.entries = {}, .byte_tokens = byte_tokens_, .unknown = unknown_};
      definition.entries.reserve(id_of_.size());
      for (size_t i = 0; i < vocabulary_.entries.size(); ++i) {
        const Entry& entry = vocabulary_.entries[i];
        const auto known = id_of_.find(entry.text);
        if (known == id_of_.end() || known->second != static_cast<TokenId>(i)) continue;
        definition.entries.push_back({std::string(entry.text), static_cast<TokenId>(i), entry.score});
      }
      parts_.model = std::make_unique<UnigramModel>(std::move(definition));
      return {};
    }
    BpeDefinition definition;
    definition.byte_tokens = byte_tokens_;
    definition.unknown = unknown_;
    definition.fuse_unknown = true;
    definition.character_tokens.emplace();
    for (const auto& [text, id] : id_of_) {
      if (api::CodePointAt(text).bytes == text.size())
        definition.character_tokens->emplace(api::CodePointAt(text).value, id);
    }
    if (vocabulary_.algorithm == Algorithm::kBpeByMerges) {
      definition.merges = std::move(vocabulary_.merges);
    } else {
      MergesByScore(definition);
    }
    parts_.model = std::make_unique<BpeModel>(std::move(definition));
    return {};
  }

  // The id of a part of a piece while a text merges: its own, or for one character that is no piece, as tabs
  // in Gemma's vocabularies, one of its own behind all pieces. Other parts have none.
  TokenId PartId(std::string_view part, BpeDefinition& definition) const {
    const auto known = id_of_.find(part);
    if (known != id_of_.end()) return known->second;
    const api::CodePoint character = api::CodePointAt(part);
    if (character.bytes != part.size()) return kNoToken;
    const auto next = definition.bare_begin + static_cast<TokenId>(definition.bare_characters.size());
    const auto [at, added] = definition.character_tokens->emplace(character.value, next);
    if (added) definition.bare_characters.emplace_back(part);
    return at->second;
  }

  // Every way to make a piece of two others, ranked by the piece's score; pieces of one score share a rank.
  void MergesByScore(BpeDefinition& definition) const {
    definition.bare_begin = static_cast<TokenId>(vocabulary_.entries.size());
    std::vector<float> scores;
    scores.reserve(id_of_.size());
    for (const auto& [text, id] : id_of_)
      scores.push_back(vocabulary_.entries[static_cast<size_t>(id)].score);
    std::ranges::sort(scores, std::greater<>());
    scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
    for (const auto& [text, id] : id_of_) {
      const float score = vocabulary_.entries[static_cast<size_t>(id)].score;
      const auto at = std::ranges::lower_bound(scores, score, std::greater<>());
      const auto rank = static_cast<uint32_t>(at - scores.begin());
      for (size_t cut = api::CodePointAt(text).bytes; cut < text.size();
           cut += api::CodePointAt(text, cut).bytes) {
        const TokenId left = PartId(text.substr(0, cut), definition);
        if (left == kNoToken) continue;
        const TokenId right = PartId(text.substr(cut), definition);
        if (right == kNoToken) continue;
        definition.merges.push_back({left, right, id});
        definition.ranks.push_back(rank);
      }
    }
  }

  // "<start_of_turn>" and its like are markup, but some converters call them ordinary pieces. No text becomes
  // one of those: that tells them from words in angle brackets.
  Status Markers() {
    for (size_t i = 0; i < vocabulary_.entries.size(); ++i) {
      const Entry& entry = vocabulary_.entries[i];
      const bool shaped = entry.text.size() >= 3 && entry.text.front() == '<' && entry.text.back() == '>';
      if (entry.type != TokenType::kNormal || !shaped || !api::IsValidUtf8(entry.text)) continue;
      std::vector<TokenId> ids;
      parts_.model->Encode(entry.text, ids);
      if (ids == std::vector<TokenId>{static_cast<TokenId>(i)}) continue;
      if (auto done = AddSpecial(i); !done) return done;
    }
    return {};
  }

  SentencePieceVocabulary vocabulary_;
  TokenizerParts& parts_;
  boost::unordered_flat_map<std::string_view, TokenId> id_of_;  // normal pieces; views into the caller's file
  std::array<TokenId, 256> byte_tokens_{};
  TokenId unknown_ = kNoToken;
  WordCheck words_;
};

}  // namespace

void WordCheck::Add(std::string_view entry) {
  mark_is_an_entry_ |= entry == kSpaceMark;
  while (entry.starts_with(kSpaceMark)) entry.remove_prefix(kSpaceMark.size());
  crossed_ |= entry.find(kSpaceMark) != std::string_view::npos;
}

std::string WithoutSpaceMarks(std::string_view entry) {
  return Apply({Replace{.from = std::string(kSpaceMark), .to = " "}}, entry, Before::kNothing);
}

std::string WithSpaceMarks(std::string_view text) {
  return Apply({Replace{.from = " ", .to = std::string(kSpaceMark)}}, text, Before::kNothing);
}

Status BuildSentencePiece(SentencePieceVocabulary vocabulary, TokenizerParts& parts) {
  return Builder(std::move(vocabulary), parts).Run();
}

}  // namespace quire::runner::tokenizer
