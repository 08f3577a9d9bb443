// Reads a SentencePiece tokenizer.model: the protocol buffer ModelProto of sentencepiece_model.proto.
//
// The file is not trusted. Only the wire format is read, and of it the few fields that decide ids; every
// length is checked against the bytes that are left, and memory taken is bounded by the file's size.
#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "api/base/utf8.h"
#include "runner/tokenizer/config_tokens.h"
#include "runner/tokenizer/parts.h"
#include "runner/tokenizer/sentencepiece.h"

namespace quire::runner::tokenizer {
namespace {

using api::TokenId;
using nlohmann::ordered_json;
using Status = api::Result<void>;

constexpr size_t kPiecesMax = size_t{1} << 22;

std::unexpected<api::Error> BadModel(std::string_view reason) {
  return api::Fail(api::ErrorCode::kBadModel, fmt::format("tokenizer.model: {}", reason));
}

// One field of a message: a number, or bytes.
struct Field {
  uint32_t number = 0;
  bool is_bytes = false;
  uint64_t value = 0;      // varint, fixed64 or fixed32
  std::string_view bytes;  // length-delimited
};

// The fields of a message, one after the other.
class Message {
 public:
  explicit Message(std::string_view bytes) : rest_(bytes) {}

  // The next field; nothing at the end, or when the bytes are no message (then broken() is true).
  std::optional<Field> Next() {
    if (rest_.empty() || broken_) return std::nullopt;
    const uint64_t tag = Varint();
    Field field;
    field.number = static_cast<uint32_t>(tag >> 3);
    if (tag >> 3 == 0 || tag >> 3 > 536'870'911) broken_ = true;
    switch (tag & 7U) {
      case 0:
        field.value = Varint();
        break;
      case 1:
        field.value = Fixed<uint64_t>();
        break;
      case 2:
        field.is_bytes = true;
        field.bytes = ConsumeBytes(Varint());
        break;
      case 5:
        field.value = Fixed<uint32_t>();
        break;
      default:  // groups, which nobody writes any more
        broken_ = true;
    }
    return broken_ ? std::nullopt : std::optional(field);
  }
  bool broken() const { return broken_; }

 private:
  uint64_t Varint() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 70 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      if (shift < 64) value |= uint64_t{byte & 0x7FU} << shift;
      if ((byte & 0x80U) == 0) return value;
    }
    broken_ = true;
    return 0;
  }
  std::string_view ConsumeBytes(uint64_t size) {
    if (size > rest_.size()) broken_ = true;
    if (broken_) return {};
    const std::string_view bytes = rest_.substr(0, static_cast<size_t>(size));
    rest_.remove_prefix(static_cast<size_t>(size));
    return bytes;
  }
  template <class T>
  T Fixed() {
    T value = 0;
    const std::string_view bytes = ConsumeBytes(sizeof(T));
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }

  std::string_view rest_;
  bool broken_ = false;
};

class SentencePieceLoader {
 public:
  SentencePieceLoader(std::string_view model, const ordered_json& config) : model_(model), config_(config) {}

  api::Result<TokenizerParts> Run() {
    for (const auto phase :
         {&SentencePieceLoader::Fields, &SentencePieceLoader::Named, &SentencePieceLoader::Build}) {
      if (auto done = (this->*phase)(); !done) return std::unexpected(std::move(done.error()));
    }
    return std::move(parts_);
  }

 private:
  Status Fields() {
    Message message(model_);
    while (const auto field = message.Next()) {
      if (!field->is_bytes) continue;
      Status done;
      if (field->number == 1) done = Piece(field->bytes);
      if (field->number == 2) done = Trainer(field->bytes);
      if (field->number == 3) done = Normalizer(field->bytes);
      if (!done) return done;
    }
    if (message.broken()) return BadModel("not a protocol buffer, or cut short");
    if (vocabulary_.entries.empty()) return BadModel("no pieces");
    return {};
  }

  Status Piece(std::string_view bytes) {
    const auto name = [this] { return fmt::format("piece {}", vocabulary_.entries.size()); };
    SentencePieceVocabulary::Entry entry;
    Message message(bytes);
    while (const auto field = message.Next()) {
      if (field->number == 1 && field->is_bytes) entry.text = field->bytes;
      if (field->number == 2 && !field->is_bytes) {
        entry.score = std::bit_cast<float>(static_cast<uint32_t>(field->value));
      }
      if (field->number == 3 && !field->is_bytes) {
        if (field->value < 1 || field->value > 6) return BadModel(name() + ": not a type of token");
        entry.type = static_cast<TokenType>(field->value);
      }
    }
    if (message.broken()) return BadModel(name() + ": not a message");
    if (entry.text.empty()) return BadModel(name() + ": empty");
    if (!api::IsValidUtf8(entry.text)) return BadModel(name() + ": not UTF-8");
    if (vocabulary_.entries.size() == kPiecesMax)
      return BadModel(fmt::format("more than {} pieces", kPiecesMax));
    vocabulary_.entries.push_back(entry);
    return {};
  }

  Status Trainer(std::string_view bytes) {
    Message message(bytes);
    while (const auto field = message.Next()) {
      switch (field->number) {
        case 3:
          model_type_ = field->value;
          break;
        case 24:
          if (field->value != 0) return BadModel("trainer_spec.treat_whitespace_as_suffix is not supported");
          break;
        case 41:
          bos_id_ = static_cast<int64_t>(field->value);
          break;
        case 42:
          eos_id_ = static_cast<int64_t>(field->value);
          break;
        case 44:
          vocabulary_.unknown_surface = field->bytes;
          break;
        default:
          break;
      }
    }
    if (message.broken()) return BadModel("trainer_spec: not a message");
    return {};
  }

  Status Normalizer(std::string_view bytes) {
    Message message(bytes);
    while (const auto field = message.Next()) {
      switch (field->number) {
        case 2:
          vocabulary_.character_map = std::as_bytes(std::span(field->bytes.data(), field->bytes.size()));
          break;
        case 3:
          vocabulary_.add_dummy_prefix = field->value != 0;
          break;
        case 4:
          vocabulary_.remove_extra_whitespaces = field->value != 0;
          break;
        case 5:
          if (field->value == 0)
            return BadModel("normalizer_spec.escape_whitespaces = false is not supported");
          break;
        default:
          break;
      }
    }
    if (message.broken()) return BadModel("normalizer_spec: not a message");
    return {};
  }

  // The id, if it is that of a control token.
  TokenId Control(int64_t id) const {
    if (id < 0 || id >= std::ssize(vocabulary_.entries)) return kNoToken;
    return vocabulary_.entries[static_cast<size_t>(id)].type == TokenType::kControl ? static_cast<TokenId>(id)
                                                                                    : kNoToken;
  }

  // BOS and EOS, and which pieces tokenizer_config.json makes special.
  Status Named() {
    parts_.bos = Control(bos_id_);
    parts_.eos = Control(eos_id_);
    const std::string_view bos = ConfigToken(config_, "bos_token"), eos = ConfigToken(config_, "eos_token");
    for (size_t i = 0; i < vocabulary_.entries.size(); ++i) {
      SentencePieceVocabulary::Entry& entry = vocabulary_.entries[i];
      if (entry.text == bos) parts_.bos = static_cast<TokenId>(i);
      if (entry.text == eos) parts_.eos = static_cast<TokenId>(i);
    }
    MakeAddedTokensSpecial();
    for (const TokenId id : {parts_.bos, parts_.eos}) {
      if (id == kNoToken) continue;
      vocabulary_.entries[static_cast<size_t>(id)].type = TokenType::kControl;
    }
    return {};
  }

  // Those of "added_tokens_decoder" that are pieces.
  void MakeAddedTokensSpecial() {
    for (const ConfigAddedToken& added : ConfigTokens(config_)) {
      const auto id = static_cast<size_t>(added.token.id);
      if (added.token.id == kNoToken || id >= vocabulary_.entries.size() || !added.token.special) continue;
      SentencePieceVocabulary::Entry& entry = vocabulary_.entries[id];
      if (entry.text == added.content && entry.type != TokenType::kUnknown) entry.type = TokenType::kControl;
    }
  }

  // Those that are none: they have ids behind the pieces.
  Status AddTokensBehind(size_t pieces) {
    for (ConfigAddedToken& added : ConfigTokens(config_)) {
      const auto id = static_cast<size_t>(added.token.id);
      if (added.token.id == kNoToken || id < pieces || id >= pieces + kUnusedIdsMax) continue;
      if (added.content == ConfigToken(config_, "bos_token")) parts_.bos = added.token.id;
      if (added.content == ConfigToken(config_, "eos_token")) parts_.eos = added.token.id;
      parts_.vocabulary.Set(added.token.id, added.content, added.token.special);
      if (auto done = AddToken(std::move(added.token), parts_); !done) return BadModel(done.error().message);
    }
    return {};
  }

  Status Build() {
    switch (model_type_) {
      case 1:
        vocabulary_.algorithm = SentencePieceVocabulary::Algorithm::kUnigram;
        break;
      case 2:
        vocabulary_.algorithm = SentencePieceVocabulary::Algorithm::kBpeByScore;
        break;
      default:
        return BadModel(fmt::format(
            "trainer_spec.model_type {} is not supported; unigram (1) and BPE (2) are", model_type_));
    }
    if (!vocabulary_.unknown_surface) vocabulary_.unknown_surface = kUnknownSurface;
    const bool bpe = model_type_ == 2;
    const size_t pieces = vocabulary_.entries.size();
    if (auto done = BuildSentencePiece(std::move(vocabulary_), parts_); !done)
      return BadModel(done.error().message);
    if (auto done = AddTokensBehind(pieces); !done) return done;
    const auto says = [this](const char* key, bool otherwise) {
      const auto value = config_.is_object() ? config_.find(key) : config_.end();
      return config_.is_object() && value != config_.end() && value->is_boolean() ? value->get<bool>()
                                                                                  : otherwise;
    };
    // The Llama and Gemma families, which use BPE, add BOS unless configured otherwise.
    parts_.add_bos = says("add_bos_token", bpe) && parts_.bos != kNoToken;
    parts_.add_eos = says("add_eos_token", false) && parts_.eos != kNoToken;
    return {};
  }

  static constexpr std::string_view kUnknownSurface = " \xE2\x81\x87 ";

  const std::string_view model_;
  const ordered_json& config_;
  SentencePieceVocabulary vocabulary_;
  uint64_t model_type_ = 1;
  int64_t bos_id_ = 1;
  int64_t eos_id_ = 2;
  TokenizerParts parts_;
};

}  // namespace

api::Result<TokenizerParts> LoadSentencePieceModel(std::span<const std::byte> model,
                                                   const ordered_json& tokenizer_config) {
  return SentencePieceLoader({reinterpret_cast<const char*>(model.data()), model.size()}, tokenizer_config)
      .Run();
}

}  // namespace quire::runner::tokenizer
