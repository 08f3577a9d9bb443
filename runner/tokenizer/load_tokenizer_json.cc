// Reads a tokenizer.json (Hugging Face tokenizers 0.x serialization).
//
// The file is not trusted: every field is checked for type and range before it is used, and what it declares
// may take memory only in proportion to the file's own size.
#include <fmt/format.h>

#include <algorithm>
#include <boost/unordered/unordered_flat_map.hpp>
#include <boost/unordered/unordered_flat_set.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "api/base/utf8.h"
#include "runner/tokenizer/byte_level.h"
#include "runner/tokenizer/byte_tokens.h"
#include "runner/tokenizer/config_tokens.h"
#include "runner/tokenizer/find_merge.h"
#include "runner/tokenizer/json_fields.h"
#include "runner/tokenizer/load_pre_tokenizer.h"
#include "runner/tokenizer/load_text_steps.h"
#include "runner/tokenizer/parts.h"
#include "runner/tokenizer/post_processor.h"
#include "runner/tokenizer/sentencepiece.h"
#include "runner/tokenizer/unigram.h"
#include "runner/tokenizer/wordpiece.h"

namespace quire::runner::tokenizer {
namespace {

using api::TokenId;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr size_t kDepthMax = 64;
constexpr int32_t kWordCharactersMax = 10'000;
using Status = api::Result<void>;

template <class T>
std::unexpected<api::Error> Pass(api::Result<T>& result) {
  return std::unexpected(std::move(result.error()));
}

class TokenizerJsonLoader {
 public:
  TokenizerJsonLoader(const json& document, const ordered_json& config, TokenId ids_max)
      : document_(document), config_(config), ids_max_(ids_max) {}

  api::Result<TokenizerParts> Run() {
    using Phase = Status (TokenizerJsonLoader::*)();
    constexpr Phase kPhases[] = {&TokenizerJsonLoader::Kind,
                                 &TokenizerJsonLoader::Steps,
                                 &TokenizerJsonLoader::Vocab,
                                 &TokenizerJsonLoader::Merges,
                                 &TokenizerJsonLoader::StartTokens,
                                 &TokenizerJsonLoader::AddedTokens,
                                 &TokenizerJsonLoader::ConfigOnlyTokens,
                                 &TokenizerJsonLoader::NamedSpecials,
                                 &TokenizerJsonLoader::Model,
                                 &TokenizerJsonLoader::Ends};
    for (const Phase phase : kPhases) {
      if (auto done = (this->*phase)(); !done) return Pass(done);
    }
    return std::move(parts_);
  }

 private:
  // Which model it is, and that nothing is set that changes its ids in a way we do not follow.
  Status Kind() {
    const json* model = Member(document_, "model");
    if (model == nullptr || !model->is_object()) return BadField("model", "not an object");
    model_ = model;
    const json* type = Member(*model, "type");  // old files of GPT-2 do not say
    unigram_ = type != nullptr && *type == "Unigram";
    wordpiece_ = type != nullptr && *type == "WordPiece";
    if (type != nullptr && *type != "BPE" && !unigram_ && !wordpiece_) {
      return BadField("model.type", "only BPE, Unigram and WordPiece are supported");
    }
    if (wordpiece_) return {};
    const json* dropout = Member(*model, "dropout");
    if (dropout != nullptr && !(dropout->is_number() && dropout->get<double>() == 0)) {
      return BadField("model.dropout", "not supported");
    }
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const json* affix = Member(*model, key);
      if (affix != nullptr && *affix != "") return BadField(fmt::format("model.{}", key), "not supported");
    }
    return {};
  }

  Status Steps() {
    static const json kNull;
    const auto field = [this](const char* key) -> const json& {
      const json* value = Member(document_, key);
      return value == nullptr ? kNull : *value;
    };
    auto pre_tokenizer = LoadPreTokenizer(field("pre_tokenizer"));
    if (!pre_tokenizer) return Pass(pre_tokenizer);
    auto normalizer = LoadNormalizer(field("normalizer"));
    if (!normalizer) return Pass(normalizer);
    byte_level_ = pre_tokenizer->byte_level;
    if (byte_level_ && (unigram_ || wordpiece_)) {
      return BadField("pre_tokenizer", "ByteLevel is supported with BPE only");
    }
    parts_.pre_tokenizer = std::move(pre_tokenizer->splits);
    parts_.normal_form = normalizer->normal_form;
    parts_.steps = std::move(normalizer->steps);
    if (pre_tokenizer->words) parts_.word_steps.emplace_back(SpaceWords{});
    if (pre_tokenizer->mark_spaces) parts_.word_steps.emplace_back(*pre_tokenizer->mark_spaces);
    if (byte_level_) return {};
    auto decoder = LoadDecoder(field("decoder"));
    if (!decoder) return Pass(decoder);
    marks_are_spaces_ = decoder->marks_are_spaces;
    parts_.leading_spaces = decoder->leading_spaces;
    auto byte_fallback = BoolMember(*model_, "byte_fallback", false, "model");
    if (!byte_fallback) return Pass(byte_fallback);
    byte_fallback_ = *byte_fallback;
    return {};
  }

  // "continuing_subword_prefix": "##".
  Status WordPiece() {
    auto prefix = StringMember(*model_, "continuing_subword_prefix", "model");
    if (!prefix) return Pass(prefix);
    if (prefix->empty()) return BadField("model.continuing_subword_prefix", "empty is not supported");
    continuation_ = *prefix;
    const json* longest = Member(*model_, "max_input_chars_per_word");
    if (longest == nullptr) return {};
    auto characters = TokenIdOf(*longest, "model.max_input_chars_per_word");
    if (!characters) return Pass(characters);
    if (*characters < 1 || *characters > kWordCharactersMax) {
      return BadField("model.max_input_chars_per_word", fmt::format("not in [1, {}]", kWordCharactersMax));
    }
    wordpiece_definition_.word_characters_max = static_cast<size_t>(*characters);
    return {};
  }

  Status Vocab() {
    if (wordpiece_) {
      if (auto done = WordPiece(); !done) return done;
    }
    const json* added = Member(document_, "added_tokens");
    if (added != nullptr && !added->is_array()) return BadField("added_tokens", "not an array");
    const json* vocab = Member(*model_, "vocab");
    if (unigram_ ? vocab == nullptr || !vocab->is_array() : vocab == nullptr || !vocab->is_object()) {
      return BadField("model.vocab", unigram_ ? "not an array" : "not an object");
    }
    ids_end_ = vocab->size() + (added == nullptr ? 0 : added->size()) + kUnusedIdsMax;
    id_of_.reserve(vocab->size());
    next_id_ = static_cast<TokenId>(vocab->size());
    auto taken = unigram_ ? ScoredVocab(*vocab) : BpeVocab(*vocab);
    return taken && id_of_.empty() ? BadField("model.vocab", "empty") : taken;
  }

  Status BpeVocab(const json& vocab) {
    for (const auto& [entry, value] : vocab.items()) {
      const auto path = [&, &key = entry] { return fmt::format("model.vocab[\"{}\"]", key.substr(0, 64)); };
      auto id = CheckedId(value, path());
      if (!id) return Pass(id);
      if (entry.size() > kTokenBytesMax) return BadField(path(), "too long");
      if (IsUsed(*id)) return BadField(path(), fmt::format("id {} is used twice", *id));
      Use(*id);
      id_of_.emplace(entry, *id);
      SetBytes(*id, entry);
    }
    return {};
  }

  // [["<unk>", 0.0], ...]: an entry's id is its position.
  Status ScoredVocab(const json& vocab) {
    unigram_definition_.entries.reserve(vocab.size());
    for (size_t i = 0; i < vocab.size(); ++i) {
      const json& pair = vocab[i];
      const auto path = [i] { return fmt::format("model.vocab[{}]", i); };
      if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_number()) {
        return BadField(path(), "not a string and a number");
      }
      const std::string_view entry = pair[0].get_ref<const std::string&>();
      const auto score = pair[1].get<float>();
      if (entry.size() > kUnigramTextBytesMax) return BadField(path(), "too long");
      if (!std::isfinite(score)) return BadField(path(), "its score is not a number");
      const auto id = static_cast<TokenId>(i);
      Use(id);
      id_of_.emplace(entry, id);
      SetBytes(id, entry);
      unigram_definition_.entries.push_back({std::string(entry), id, score});
    }
    return {};
  }

  // The text of an entry of the vocabulary.
  void SetBytes(TokenId id, std::string_view entry) {
    if (byte_level_) {
      const auto bytes = FromByteLevel(entry);
      parts_.vocabulary.Set(id, bytes ? std::string_view(*bytes) : entry, false);
      return;
    }
    if (wordpiece_) {
      const bool continues = entry.starts_with(continuation_) && entry.size() > continuation_.size();
      const std::string_view text = continues ? entry.substr(continuation_.size()) : entry;
      parts_.vocabulary.Set(id, continues ? std::string(text) : " " + std::string(text), false);
      wordpiece_definition_.entries.push_back({std::string(text), continues, id});
      return;
    }
    words_.Add(entry);
    if (const auto byte = byte_fallback_ ? ByteOfEntry(entry) : std::nullopt) {
      const char text = static_cast<char>(*byte);
      parts_.vocabulary.Set(id, {&text, 1}, false);
    } else if (marks_are_spaces_) {
      parts_.vocabulary.Set(id, WithoutSpaceMarks(entry), false);
    } else {
      parts_.vocabulary.Set(id, entry, false);
    }
  }

  api::Result<TokenId> CheckedId(const json& value, std::string_view path) const {
    auto id = TokenIdOf(value, path);
    if (id && static_cast<size_t>(*id) >= ids_end_) {
      return BadField(path, fmt::format("id {} leaves more than {} ids unused", *id, kUnusedIdsMax));
    }
    return id;
  }
  bool IsUsed(TokenId id) const {
    return static_cast<size_t>(id) < used_.size() && used_[static_cast<size_t>(id)];
  }
  void Use(TokenId id) {
    const auto index = static_cast<size_t>(id);
    if (index >= used_.size()) used_.resize(index + 1);
    used_[index] = true;
  }

  Status AddedTokens() {
    const json* added = Member(document_, "added_tokens");
    if (added == nullptr) return {};
    for (size_t i = 0; i < added->size(); ++i) {
      if (auto done = AddedTokenAt((*added)[i], fmt::format("added_tokens[{}]", i)); !done) return done;
    }
    return {};
  }

  Status AddedTokenAt(const json& value, const std::string& path) {
    auto content = StringMember(value, "content", path);
    if (!content) return Pass(content);
    const json* id_value = Member(value, "id");
    auto id = CheckedId(id_value == nullptr ? json() : *id_value, path + ".id");
    if (!id) return Pass(id);
    AddedToken token{.id = *id, .content = std::string(*content)};
    const std::pair<const char*, bool*> flags[] = {{"special", &token.special},
                                                   {"normalized", &token.normalized},
                                                   {"lstrip", &token.lstrip},
                                                   {"rstrip", &token.rstrip},
                                                   {"single_word", &token.single_word}};
    for (const auto& [key, flag] : flags) {
      auto set = BoolMember(value, key, false, path);
      if (!set) return Pass(set);
      *flag = *set;
    }
    for (const char* end : {"bos_token", "eos_token"}) token.special |= *content == ConfigToken(config_, end);
    const auto known = id_of_.find(*content);
    if (known != id_of_.end() && known->second != *id) {
      return BadField(path + ".id", fmt::format("\"{}\" already has id {}", *content, known->second));
    }
    if (known == id_of_.end() && IsUsed(*id))
      return BadField(path + ".id", fmt::format("id {} is used twice", *id));
    if (!added_ids_.insert(*id).second)
      return BadField(path + ".id", fmt::format("id {} is added twice", *id));
    Use(*id);
    next_id_ = std::max(next_id_, *id + 1);
    id_of_.emplace(*content, *id);
    return Add(std::move(token), path + ".content");
  }

  // What an added token adds to a text. Decoders rewrite marks and join words in them as in other entries.
  std::string TextOf(const AddedToken& token) const {
    if (token.special) return token.content;
    if (wordpiece_) return " " + token.content;
    return marks_are_spaces_ ? WithoutSpaceMarks(token.content) : token.content;
  }

  Status Add(AddedToken token, std::string_view path) {
    parts_.vocabulary.Set(token.id, TextOf(token), token.special);
    if (token.content.contains(' ')) parts_.own_spaces.push_back(token.id);
    auto done = AddToken(std::move(token), parts_);
    return done ? done : BadField(path, done.error().message);
  }

  // Tokens that only tokenizer_config.json knows. What is no entry of the vocabulary gets the next id behind
  // it, as long as the model has a row for it.
  Status ConfigOnlyTokens() {
    for (ConfigAddedToken& added : ConfigTokens(config_)) {
      const auto known = id_of_.find(added.content);
      const bool is_entry = known != id_of_.end();
      if (is_entry && (!added.listed || added_ids_.contains(known->second))) continue;
      added.token.id = is_entry ? known->second : next_id_;
      if (!is_entry && (next_id_ >= ids_max_ || IsUsed(next_id_))) continue;
      if (!is_entry) ++next_id_;
      Use(added.token.id);
      added_ids_.insert(added.token.id);
      id_of_.emplace(added.content, added.token.id);
      if (auto done = Add(std::move(added.token), "tokenizer_config.json"); !done) return done;
    }
    return {};
  }

  // The BOS and EOS that tokenizer_config.json names are special even where added_tokens lacks them.
  Status NamedSpecials() {
    const std::pair<const char*, TokenId*> named[] = {{"bos_token", &parts_.bos}, {"eos_token", &parts_.eos}};
    for (const auto& [key, id] : named) {
      const std::string_view content = ConfigToken(config_, key);
      const auto known = content.empty() ? id_of_.end() : id_of_.find(content);
      if (known == id_of_.end()) continue;
      *id = known->second;
      if (parts_.vocabulary.IsSpecial(*id)) continue;
      if (auto done = Add({.id = *id, .content = std::string(content), .special = true}, key); !done)
        return done;
    }
    if (parts_.eos != kNoToken) parts_.ends.push_back(parts_.eos);
    return {};
  }

  Status Merges() {
    if (unigram_ || wordpiece_) return {};
    const json* merges = Member(*model_, "merges");
    if (merges == nullptr || !merges->is_array()) return BadField("model.merges", "not an array");
    bpe_.merges.reserve(merges->size());
    for (size_t i = 0; i < merges->size(); ++i) {
      if (auto done = MergeAt((*merges)[i], i); !done) return done;
    }
    return {};
  }

  // ["a", "b"], or "a b" in older files.
  Status MergeAt(const json& value, size_t index) {
    const auto path = [&] { return fmt::format("model.merges[{}]", index); };
    std::string_view left;
    std::string_view right;
    if (value.is_array() && value.size() == 2 && value[0].is_string() && value[1].is_string()) {
      left = value[0].get_ref<const std::string&>();
      right = value[1].get_ref<const std::string&>();
    } else if (value.is_string()) {
      const std::string_view both = value.get_ref<const std::string&>();
      const size_t space = both.find(' ');
      if (space == std::string_view::npos || both.find(' ', space + 1) != std::string_view::npos) {
        return BadField(path(), "not two parts");
      }
      left = both.substr(0, space);
      right = both.substr(space + 1);
    } else {
      return BadField(path(), "not a pair of strings");
    }
    const auto merge = FindMerge(id_of_, left, right);
    if (!merge) return BadField(path(), fmt::format("\"{}\" is not in the vocabulary", merge.error()));
    bpe_.merges.push_back(*merge);
    return {};
  }

  // The initial tokens of bytes and characters, before added tokens get into the table of names.
  Status StartTokens() {
    bpe_.byte_tokens.fill(kNoToken);
    for (unsigned byte = 0; byte < 256; ++byte) {
      std::string entry;
      if (byte_level_) entry = ByteLevelCharacter(static_cast<uint8_t>(byte));
      if (byte_fallback_) entry = fmt::format("<0x{:02X}>", byte);
      const auto known = id_of_.find(entry);
      if (known != id_of_.end()) bpe_.byte_tokens[byte] = known->second;
    }
    if (!byte_level_ && !unigram_) {
      bpe_.character_tokens.emplace();
      for (const auto& [entry, id] : id_of_) {
        if (entry.empty() || api::CodePointAt(entry).bytes != entry.size()) continue;
        bpe_.character_tokens->emplace(api::CodePointAt(entry).value, id);
      }
    }
    parts_.pre_tokenizer.cut_words = !byte_level_ && !wordpiece_ && words_.words_stand_alone();
    return unigram_ ? UnknownId() : UnknownToken();
  }

  Status UnknownToken() {
    const json* unknown = Member(*model_, "unk_token");
    if (unknown != nullptr && !unknown->is_string()) return BadField("model.unk_token", "not a string");
    if (unknown != nullptr) {
      const auto known = id_of_.find(unknown->get_ref<const std::string&>());
      if (known != id_of_.end()) bpe_.unknown = known->second;
    }
    auto fuse = BoolMember(*model_, "fuse_unk", false, "model");
    if (!fuse) return Pass(fuse);
    bpe_.fuse_unknown = *fuse;
    return {};
  }

  Status UnknownId() {
    const json* unknown = Member(*model_, "unk_id");
    if (unknown == nullptr) return {};
    auto id = TokenIdOf(*unknown, "model.unk_id");
    if (!id) return Pass(id);
    if (static_cast<size_t>(*id) >= unigram_definition_.entries.size()) {
      return BadField("model.unk_id", "outside the vocabulary");
    }
    bpe_.unknown = *id;
    return {};
  }

  Status Model() {
    if (wordpiece_) {
      wordpiece_definition_.unknown = bpe_.unknown;
      parts_.model = std::make_unique<WordPieceModel>(std::move(wordpiece_definition_));
      return {};
    }
    if (unigram_) {
      MakeUnigram();
      return {};
    }
    auto ignore_merges = BoolMember(*model_, "ignore_merges", false, "model");
    if (!ignore_merges) return Pass(ignore_merges);
    if (*ignore_merges) {
      for (const auto& [entry, id] : Member(*model_, "vocab")->items()) {
        auto bytes = byte_level_ ? FromByteLevel(entry) : std::optional(entry);
        const TokenId known = id_of_.find(entry)->second;
        if (bytes && !parts_.vocabulary.IsSpecial(known)) {
          bpe_.whole_pieces.emplace_back(*std::move(bytes), known);
        }
      }
    }
    parts_.model = std::make_unique<BpeModel>(std::move(bpe_));
    return {};
  }

  // Special tokens and bytes are not spelled by text, as in SentencePiece.
  void MakeUnigram() {
    std::erase_if(unigram_definition_.entries, [this](const UnigramDefinition::Entry& entry) {
      return entry.text.empty() || parts_.vocabulary.IsSpecial(entry.id) || entry.id == bpe_.unknown ||
             (byte_fallback_ && ByteOfEntry(entry.text));
    });
    unigram_definition_.byte_tokens = bpe_.byte_tokens;
    unigram_definition_.unknown = bpe_.unknown;
    parts_.model = std::make_unique<UnigramModel>(std::move(unigram_definition_));
  }

  // The source of BOS and EOS: the post-processor, or tokenizer_config.json where that has no
  // say.
  Status Ends() {
    const json* post_processor = Member(document_, "post_processor");
    if (post_processor != nullptr) {
      auto ends = LoadPostProcessor(*post_processor, parts_.vocabulary.size());
      if (!ends) return Pass(ends);
      if (ends->prefix != kNoToken) parts_.bos = ends->prefix;
      if (ends->suffix != kNoToken) parts_.eos = ends->suffix;
      parts_.pair = std::move(ends->pair);
      parts_.add_bos = ends->prefix != kNoToken;
      parts_.add_eos = ends->suffix != kNoToken;
      if (ends->decides) return {};
    }
    const auto says = [&](const char* key) {
      const auto value = config_.is_object() ? config_.find(key) : config_.end();
      return config_.is_object() && value != config_.end() && value->is_boolean() && value->get<bool>();
    };
    parts_.add_bos = says("add_bos_token") && parts_.bos != kNoToken;
    parts_.add_eos = says("add_eos_token") && parts_.eos != kNoToken;
    return {};
  }

  const json& document_;
  const ordered_json& config_;
  const json* model_ = nullptr;
  boost::unordered_flat_map<std::string_view, TokenId> id_of_;  // views into document_
  boost::unordered_flat_set<TokenId> added_ids_;
  std::vector<bool> used_;  // [ids]
  size_t ids_end_ = 0;
  const TokenId ids_max_;  // rows of the model
  TokenId next_id_ = 0;    // of a token that no list gives one
  bool unigram_ = false;
  bool wordpiece_ = false;
  std::string_view continuation_;  // what marks entries of WordPiece that continue a word
  WordPieceDefinition wordpiece_definition_;
  bool byte_level_ = false;  // the vocabulary is written in the byte-level alphabet
  bool byte_fallback_ = false;
  bool marks_are_spaces_ = false;
  WordCheck words_;
  BpeDefinition bpe_;  // its byte and unknown tokens serve Unigram too
  UnigramDefinition unigram_definition_;
  TokenizerParts parts_;
};

}  // namespace

api::Result<TokenizerParts> LoadTokenizerJson(std::string_view text, const ordered_json& tokenizer_config,
                                              api::TokenId ids_max) {
  if (NestsDeeper(text, kDepthMax)) return BadField("$", fmt::format("nested deeper than {}", kDepthMax));
  json document;
  try {
    document = json::parse(text);
  } catch (const json::exception& error) {
    return BadField("$", error.what());
  }
  return TokenizerJsonLoader(document, tokenizer_config, ids_max).Run();
}

}  // namespace quire::runner::tokenizer
