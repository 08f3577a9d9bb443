// Reads the tokenizer that a GGUF file carries in its key/values.
//
// The values are not trusted: types, lengths and ids are checked before use. Ids are positions in the token
// list, so the list's own size bounds everything.
#include <fmt/format.h>

#include <algorithm>
#include <boost/unordered/unordered_flat_map.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "api/base/utf8.h"
#include "runner/tokenizer/byte_level.h"
#include "runner/tokenizer/byte_tokens.h"
#include "runner/tokenizer/find_merge.h"
#include "runner/tokenizer/known_patterns.h"
#include "runner/tokenizer/least_cost.h"
#include "runner/tokenizer/longest_match.h"
#include "runner/tokenizer/parts.h"
#include "runner/tokenizer/post_processor.h"
#include "runner/tokenizer/published_markup.h"
#include "runner/tokenizer/sentencepiece.h"
#include "runner/tokenizer/wordpiece.h"

namespace quire::runner::tokenizer {
namespace {

using api::TokenId;
using nlohmann::ordered_json;
using Status = api::Result<void>;

std::unexpected<api::Error> BadKey(std::string_view key, std::string_view reason) {
  return api::Fail(api::ErrorCode::kBadModel, fmt::format("tokenizer.ggml.{}: {}", key, reason));
}

class GgufLoader {
 public:
  explicit GgufLoader(const ordered_json& key_values)
      : key_values_(key_values), strips_(StripRules::Of(key_values)) {}

  api::Result<TokenizerParts> Run() {
    using Phase = Status (GgufLoader::*)();
    constexpr Phase kByteLevel[] = {&GgufLoader::PreTokenizer, &GgufLoader::Types,  &GgufLoader::NamedIds,
                                    &GgufLoader::Tokens,       &GgufLoader::Merges, &GgufLoader::Finish,
                                    &GgufLoader::Ends};
    constexpr Phase kSentencePiece[] = {&GgufLoader::Types, &GgufLoader::NamedIds,
                                        &GgufLoader::SentencePieces, &GgufLoader::Ends};
    constexpr Phase kWordPiece[] = {&GgufLoader::Types, &GgufLoader::NamedIds, &GgufLoader::WordPieces,
                                    &GgufLoader::Ends};
    constexpr Phase kWorld[] = {&GgufLoader::Types, &GgufLoader::NamedIds, &GgufLoader::WorldTokens,
                                &GgufLoader::Ends};
    if (auto done = Kind(); !done) return std::unexpected(std::move(done.error()));
    constexpr Phase kLeastCost[] = {&GgufLoader::Types, &GgufLoader::NamedIds, &GgufLoader::ScoredTokens,
                                    &GgufLoader::Ends};
    const auto phases = world_       ? std::span<const Phase>(kWorld)
                        : scored_    ? std::span<const Phase>(kLeastCost)
                        : wordpiece_ ? std::span<const Phase>(kWordPiece)
                        : algorithm_ ? std::span<const Phase>(kSentencePiece)
                                     : std::span<const Phase>(kByteLevel);
    for (const Phase phase : phases) {
      if (auto done = (this->*phase)(); !done) return std::unexpected(std::move(done.error()));
    }
    return std::move(parts_);
  }

 private:
  // The value of tokenizer.ggml.<key>, or null.
  const ordered_json* Find(std::string_view key) const {
    if (!key_values_.is_object()) return nullptr;
    const auto found = key_values_.find(fmt::format("tokenizer.ggml.{}", key));
    return found == key_values_.end() || found->is_null() ? nullptr : &*found;
  }

  api::Result<std::string_view> String(std::string_view key) const {
    const ordered_json* value = Find(key);
    if (value == nullptr) return BadKey(key, "absent");
    if (!value->is_string()) return BadKey(key, "not a string");
    return std::string_view(value->get_ref<const std::string&>());
  }

  api::Result<std::optional<bool>> Flag(std::string_view key) const {
    const ordered_json* value = Find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_boolean()) return BadKey(key, "not a boolean");
    return value->get<bool>();
  }

  Status Kind() {
    auto model = String("model");
    if (!model) return std::unexpected(std::move(model.error()));
    using Algorithm = SentencePieceVocabulary::Algorithm;
    if (*model == "llama") {
      algorithm_ = Algorithm::kBpeByScore;
      add_bos_ = true;
    } else if (*model == "gemma4") {
      algorithm_ = Algorithm::kBpeByMerges;
      add_bos_ = true;
    } else if (*model == "t5") {
      algorithm_ = Algorithm::kUnigram;
      add_eos_ = true;
    } else if (*model == "bert") {
      wordpiece_ = add_bos_ = add_eos_ = true;
    } else if (*model == "rwkv") {
      world_ = true;
    } else if (*model == "plamo2") {
      scored_ = true;
    } else if (*model == "gpt2" && MergesText()) {
      algorithm_ = Algorithm::kBpeByMerges;
    } else if (*model != "gpt2") {
      return BadKey("model",
                    fmt::format("\"{}\" is not supported; gpt2, llama, gemma4, t5, bert, rwkv and plamo2 are",
                                model->substr(0, 64)));
    }
    tokens_ = Find("tokens");
    if (tokens_ == nullptr || !tokens_->is_array()) return BadKey("tokens", "not an array");
    if (tokens_->empty()) return BadKey("tokens", "empty");
    return {};
  }

  // Whether the vocabulary of kind "gpt2" is not of bytes but of text, as tokenizer.ggml.pre says.
  bool MergesText() const {
    const ordered_json* pre = Find("pre");
    if (pre == nullptr || !pre->is_string()) return false;
    const KnownPreTokenizer* known = FindPreTokenizer(pre->get_ref<const std::string&>());
    return known != nullptr && known->patterns.empty();
  }

  Status PreTokenizer() {
    auto pre = String("pre");
    if (!pre) return BadKey("pre", "absent, and the vocabulary does not tell which one it is");
    known_ = FindPreTokenizer(*pre);
    if (const std::string_view why = WhyUnsupported(*pre); !why.empty()) {
      return BadKey("pre", fmt::format("\"{}\" is not supported: {}", *pre, why));
    }
    if (known_ == nullptr) {
      return BadKey("pre", fmt::format("\"{}\" is not known; these are: {}", pre->substr(0, 64),
                                       fmt::join(KnownPreTokenizerNames(), ", ")));
    }
    add_bos_ = known_->add_bos;
    auto nfc = Flag("normalizer.nfc");
    if (!nfc) return std::unexpected(std::move(nfc.error()));
    parts_.normal_form =
        nfc->has_value() ? (**nfc ? NormalForm::kNfc : NormalForm::kNone) : known_->normal_form;
    for (const std::string_view pattern : known_->patterns) {
      auto step = CompileSplit(pattern, Regex::Syntax::kOniguruma);
      if (!step) return BadKey("pre", step.error().message);
      parts_.pre_tokenizer.steps.push_back(*std::move(step));
    }
    return {};
  }

  Status Types() {
    types_.assign(tokens_->size(), TokenType::kNormal);
    const ordered_json* types = Find("token_type");
    if (types != nullptr && (!types->is_array() || types->size() != tokens_->size())) {
      return BadKey("token_type", "not an array as long as tokens");
    }
    for (size_t i = 0; i < types_.size(); ++i) {
      const ordered_json type = types == nullptr ? ordered_json(1) : (*types)[i];
      const int64_t value = type.is_number_integer() ? type.get<int64_t>() : 0;
      if (value < 1 || value > 6) return BadKey(fmt::format("token_type[{}]", i), "not a token type");
      types_[i] = static_cast<TokenType>(value);
      const bool is_byte = types_[i] == TokenType::kByte;
      if (!world_ && !is_byte && IsControlText(TextAt(i))) types_[i] = TokenType::kControl;
    }
    return {};
  }

  // Empty where the entry is no string.
  std::string_view TextAt(size_t i) const {
    const ordered_json& token = (*tokens_)[i];
    return token.is_string() ? std::string_view(token.get_ref<const std::string&>()) : std::string_view();
  }

  // Ids that other keys name. Whatever ends a turn is special, also in files whose types do not say so.
  Status NamedIds() {
    TokenId end_of_turn = kNoToken;
    TokenId end_of_message = kNoToken;
    TokenId padding = kNoToken, mask = kNoToken, first = kNoToken;
    const std::pair<const char*, TokenId*> named[] = {{"bos_token_id", &parts_.bos},
                                                      {"eos_token_id", &parts_.eos},
                                                      {"eot_token_id", &end_of_turn},
                                                      {"eom_token_id", &end_of_message},
                                                      {"unknown_token_id", &bpe_.unknown},
                                                      {"seperator_token_id", &separator_},
                                                      {"padding_token_id", &padding},
                                                      {"mask_token_id", &mask},
                                                      {"cls_token_id", &first}};
    for (const auto& [key, id] : named) {
      const ordered_json* value = Find(key);
      if (value == nullptr) continue;
      if (!value->is_number_unsigned() || value->get<uint64_t>() >= tokens_->size()) {
        return BadKey(key, "not the id of a token");
      }
      *id = value->get<TokenId>();
      const bool names_markup = id == &separator_ || id == &padding || id == &mask || id == &first;
      // What its type says. A turn of RWKV ends with two line breaks, which are text.
      if ((names_markup && !wordpiece_) || world_) continue;
      if (id != &bpe_.unknown) types_[static_cast<size_t>(*id)] = TokenType::kControl;
    }
    if (algorithm_) DefaultIds();
    if (wordpiece_ && parts_.bos == kNoToken) parts_.bos = first;
    if (wordpiece_ && parts_.eos == kNoToken) parts_.eos = separator_;
    return {};
  }

  // Where SentencePiece puts them when nobody says otherwise.
  void DefaultIds() {
    const auto is = [this](size_t id, TokenType type) { return id < types_.size() && types_[id] == type; };
    if (bpe_.unknown != kNoToken) types_[static_cast<size_t>(bpe_.unknown)] = TokenType::kUnknown;
    if (Find("bos_token_id") == nullptr && is(1, TokenType::kControl)) parts_.bos = 1;
    if (Find("eos_token_id") == nullptr && is(2, TokenType::kControl)) parts_.eos = 2;
  }

  // The text of a token, which is then found by it; of two tokens with one text the first is.
  api::Result<std::string_view> RegisterToken(size_t i) {
    const ordered_json& value = (*tokens_)[i];
    if (!value.is_string()) return BadKey(fmt::format("tokens[{}]", i), "not a string");
    const std::string_view text = value.get_ref<const std::string&>();
    if (text.size() > kTokenBytesMax) return BadKey(fmt::format("tokens[{}]", i), "too long");
    id_of_.emplace(text, static_cast<TokenId>(i));
    return text;
  }

  Status Tokens() {
    id_of_.reserve(tokens_->size());
    for (size_t i = 0; i < tokens_->size(); ++i) {
      const auto registered = RegisterToken(i);
      if (!registered) return std::unexpected(registered.error());
      const std::string_view text = *registered;
      const auto id = static_cast<TokenId>(i);
      const TokenType type = types_[i];
      const bool special = type == TokenType::kControl || type == TokenType::kUnknown;
      if (!special && type != TokenType::kUserDefined) {
        const auto bytes = FromByteLevel(text);
        parts_.vocabulary.Set(id, bytes ? std::string_view(*bytes) : text, false);
        continue;
      }
      if (auto done = AddMarkup(id, text, special); !done) return done;
    }
    return {};
  }

  Status Merges() {
    const ordered_json* merges = Find("merges");
    if (merges == nullptr || !merges->is_array()) return BadKey("merges", "not an array");
    bpe_.merges.reserve(merges->size());
    for (size_t i = 0; i < merges->size(); ++i) {
      const ordered_json& value = (*merges)[i];
      const auto key = [&] { return fmt::format("merges[{}]", i); };
      if (!value.is_string()) return BadKey(key(), "not a string");
      const std::string_view both = value.get_ref<const std::string&>();
      const size_t space = both.find(' ', 1);
      if (space == std::string_view::npos || space + 1 == both.size()) return BadKey(key(), "not two parts");
      const auto merge = FindMerge(id_of_, both.substr(0, space), both.substr(space + 1));
      if (!merge) return BadKey(key(), fmt::format("\"{}\" is not in tokens", merge.error()));
      bpe_.merges.push_back(*merge);
    }
    return {};
  }

  // BERT's vocabulary: "\u2581word" begins a word, "word" continues one.
  Status WordPieces() {
    BertText text;
    for (const auto& [key, flag] : {std::pair<const char*, bool*>{"normalizer.lowercase", &text.lowercase},
                                    {"normalizer.clean_text", &text.clean},
                                    {"normalizer.handle_chinese_chars", &text.isolate_han}}) {
      auto set = Flag(key);
      if (!set) return std::unexpected(std::move(set.error()));
      *flag = set->value_or(true);
    }
    auto strip = Flag("normalizer.strip_accents");
    if (!strip) return std::unexpected(std::move(strip.error()));
    text.strip_accents = strip->value_or(text.lowercase);
    parts_.steps.emplace_back(text);
    SplitLikeBert(parts_.pre_tokenizer);
    parts_.leading_spaces = LeadingSpaces::kDropOne;
    WordPieceDefinition definition;
    definition.entries.reserve(tokens_->size());
    for (size_t i = 0; i < tokens_->size(); ++i) {
      if (auto done = AddWordPiece(i, definition); !done) return done;
    }
    definition.unknown = bpe_.unknown != kNoToken ? bpe_.unknown : Named("[UNK]");
    parts_.model = std::make_unique<WordPieceModel>(std::move(definition));
    return {};
  }

  // RWKV's vocabulary: bytes, escaped as in a literal of Python.
  Status WorldTokens() {
    LongestMatchDefinition definition;
    definition.unknown = bpe_.unknown;
    definition.entries.reserve(tokens_->size());
    for (size_t i = 0; i < tokens_->size(); ++i) {
      const auto text = RegisterToken(i);
      if (!text) return std::unexpected(text.error());
      const auto id = static_cast<TokenId>(i);
      if (types_[i] == TokenType::kControl || types_[i] == TokenType::kUnknown) {
        if (auto done = AddMarkup(id, *text, true); !done) return done;
        continue;
      }
      auto bytes = UnescapeBytes(*text);
      if (!bytes) return BadKey(fmt::format("tokens[{}]", i), "an escape that is not one of a byte");
      parts_.vocabulary.Set(id, *bytes, false);
      if (!bytes->empty() && types_[i] != TokenType::kUnused) {
        definition.entries.push_back({*std::move(bytes), id});
      }
    }
    parts_.model = std::make_unique<LongestMatchModel>(definition);
    return {};
  }

  // PLaMo 2's vocabulary: pieces with scores, and a token for each byte.
  Status ScoredTokens() {
    LeastCostDefinition definition;
    definition.bytes.fill(kNoToken);
    const auto scores = Scores();
    if (!scores) return std::unexpected(scores.error());
    definition.entries.reserve(tokens_->size());
    for (size_t i = 0; i < tokens_->size(); ++i) {
      const auto text = RegisterToken(i);
      if (!text) return std::unexpected(text.error());
      const auto id = static_cast<TokenId>(i);
      const TokenType type = types_[i];
      const bool special = type == TokenType::kControl || type == TokenType::kUnknown;
      const auto byte = type == TokenType::kByte ? ByteOfEntry(*text) : std::nullopt;
      if (type == TokenType::kByte && !byte) return BadKey(fmt::format("tokens[{}]", i), "not a byte");
      if (byte) {
        definition.bytes[*byte] = id;
        parts_.vocabulary.Set(id, std::string_view(reinterpret_cast<const char*>(&*byte), 1), false);
      } else if (special || type == TokenType::kUserDefined) {
        if (auto done = AddMarkup(id, *text, special); !done) return done;
      } else {
        parts_.vocabulary.Set(id, *text, false);
        if (type == TokenType::kUnused || text->empty()) continue;
        definition.entries.push_back({std::string(*text), (*scores)[i], id});
      }
    }
    if (std::ranges::find(definition.bytes, kNoToken) != definition.bytes.end()) {
      return BadKey("tokens", "some byte has no token");
    }
    parts_.model = std::make_unique<LeastCostModel>(definition);
    return {};
  }

  // A token that is found as a whole before a text is cut into pieces.
  Status AddMarkup(TokenId id, std::string_view text, bool special) {
    parts_.vocabulary.Set(id, text, special);
    if (text.empty()) return {};  // a place in the list that nothing can spell
    AddedToken token{id, std::string(text), special, false, strips_.Before(text), strips_.Behind(text)};
    auto done = AddToken(std::move(token), parts_);
    return done ? done : BadKey(fmt::format("tokens[{}]", id), done.error().message);
  }

  TokenId Named(std::string_view text) const {
    const auto known = id_of_.find(text);
    return known == id_of_.end() ? kNoToken : known->second;
  }

  Status AddWordPiece(size_t i, WordPieceDefinition& definition) {
    const auto text = RegisterToken(i);
    if (!text) return std::unexpected(text.error());
    const auto id = static_cast<TokenId>(i);
    if (types_[i] == TokenType::kControl || types_[i] == TokenType::kUnknown)
      return AddMarkup(id, *text, true);
    const bool begins = text->starts_with(kSpaceMark);
    std::string entry(begins ? text->substr(kSpaceMark.size()) : *text);
    parts_.vocabulary.Set(id, begins ? " " + entry : entry, false);
    if (!entry.empty()) definition.entries.push_back({std::move(entry), !begins, id});
    return {};
  }

  // A SentencePiece vocabulary: tokens, types and scores are its pieces.
  Status SentencePieces() {
    SentencePieceVocabulary vocabulary;
    vocabulary.algorithm = *algorithm_;
    vocabulary.symbols = SentencePieceVocabulary::Symbols::kText;
    vocabulary.entries.resize(tokens_->size());
    for (size_t i = 0; i < tokens_->size(); ++i) {
      const auto text = RegisterToken(i);
      if (!text) return std::unexpected(text.error());
      vocabulary.entries[i] = {*text, 0, types_[i], strips_.Before(*text), strips_.Behind(*text)};
    }
    if (*algorithm_ == SentencePieceVocabulary::Algorithm::kBpeByMerges) {
      if (auto done = Merges(); !done) return done;
      vocabulary.merges = std::move(bpe_.merges);
    } else {
      const auto scores = Scores();
      if (!scores) return std::unexpected(scores.error());
      for (size_t i = 0; i < scores->size(); ++i) vocabulary.entries[i].score = (*scores)[i];
    }
    const std::pair<const char*, bool*> flags[] = {
        {"add_space_prefix", &vocabulary.add_dummy_prefix},
        {"remove_extra_whitespaces", &vocabulary.remove_extra_whitespaces}};
    for (const auto& [key, flag] : flags) {
      auto set = Flag(key);
      if (!set) return std::unexpected(std::move(set.error()));
      *flag = set->value_or(*flag);
    }
    auto map = Bytes("precompiled_charsmap");
    if (!map) return std::unexpected(std::move(map.error()));
    vocabulary.character_map = *map;
    if (auto done = BuildSentencePiece(std::move(vocabulary), parts_); !done) {
      return BadKey("tokens", done.error().message);
    }
    return {};
  }

  api::Result<std::vector<float>> Scores() const {
    const ordered_json* scores = Find("scores");
    if (scores == nullptr || !scores->is_array() || scores->size() != tokens_->size()) {
      return BadKey("scores", "not an array as long as tokens");
    }
    std::vector<float> values;
    values.reserve(scores->size());
    for (size_t i = 0; i < scores->size(); ++i) {
      if (!(*scores)[i].is_number()) return BadKey(fmt::format("scores[{}]", i), "not a number");
      values.push_back((*scores)[i].get<float>());
    }
    return values;
  }

  // An array of bytes, signed or not; empty when absent.
  api::Result<std::vector<std::byte>> Bytes(std::string_view key) const {
    std::vector<std::byte> bytes;
    const ordered_json* values = Find(key);
    if (values == nullptr) return bytes;
    if (!values->is_array()) return BadKey(key, "not an array");
    bytes.reserve(values->size());
    for (const ordered_json& value : *values) {
      if (!value.is_number_integer()) return BadKey(key, "not an array of bytes");
      const auto number = value.get<int64_t>();
      if (number < -128 || number > 255) return BadKey(key, "not an array of bytes");
      bytes.push_back(static_cast<std::byte>(number));
    }
    return bytes;
  }

  Status Ends() {
    auto add_bos = Flag("add_bos_token");
    if (!add_bos) return std::unexpected(std::move(add_bos.error()));
    auto add_eos = Flag("add_eos_token");
    if (!add_eos) return std::unexpected(std::move(add_eos.error()));
    // Files of Gemma 4 say that they do without, which the model does not.
    const bool needs_bos = *String("model") == "gemma4";
    parts_.add_bos = (needs_bos || add_bos->value_or(add_bos_)) && parts_.bos != kNoToken;
    parts_.add_bos_to_chats = parts_.add_bos;
    parts_.add_eos = add_eos->value_or(add_eos_) && parts_.eos != kNoToken;
    auto add_sep = Flag("add_sep_token");
    if (!add_sep) return std::unexpected(std::move(add_sep.error()));
    if (!parts_.add_eos) return {};
    const TokenId between = add_sep->value_or(false) ? separator_ : kNoToken;
    parts_.pair =
        FrameOfPair(parts_.add_bos ? parts_.bos : kNoToken, parts_.eos, between, wordpiece_ ? 1 : 0);
    return {};
  }

  Status Finish() {
    for (unsigned byte = 0; byte < 256; ++byte) {
      const auto known = id_of_.find(ByteLevelCharacter(static_cast<uint8_t>(byte)));
      bpe_.byte_tokens[byte] = known == id_of_.end() ? kNoToken : known->second;
    }
    if (known_->ignore_merges) {
      for (const auto& [text, id] : id_of_) {
        auto bytes = FromByteLevel(text);
        const TokenType type = types_[static_cast<size_t>(id)];
        if (bytes && (type == TokenType::kNormal || type == TokenType::kUserDefined)) {
          bpe_.whole_pieces.emplace_back(*std::move(bytes), id);
        }
      }
    }
    parts_.model = std::make_unique<BpeModel>(std::move(bpe_));
    return {};
  }

  const ordered_json& key_values_;
  const KnownPreTokenizer* known_ = nullptr;
  std::optional<SentencePieceVocabulary::Algorithm> algorithm_;  // nothing: byte-level BPE
  bool add_bos_ = false;                                         // unless the file says otherwise
  bool add_eos_ = false;
  bool wordpiece_ = false;
  bool world_ = false;
  bool scored_ = false;
  TokenId separator_ = kNoToken;
  const StripRules strips_;
  const ordered_json* tokens_ = nullptr;
  std::vector<TokenType> types_;                                // [tokens]
  boost::unordered_flat_map<std::string_view, TokenId> id_of_;  // views into key_values_
  BpeDefinition bpe_;
  TokenizerParts parts_;
};

}  // namespace

api::Result<TokenizerParts> LoadGguf(const ordered_json& key_values) { return GgufLoader(key_values).Run(); }

}  // namespace quire::runner::tokenizer
