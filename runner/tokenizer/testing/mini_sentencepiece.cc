#include "runner/tokenizer/testing/mini_sentencepiece.h"

#include <fmt/format.h>

#include <array>
#include <cstring>

namespace quire::runner::tokenizer {
namespace {

std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  bytes.push_back(static_cast<char>(value));
  return bytes;
}

const std::array<std::string, 256>& ByteEntries() {
  static const auto kEntries = [] {
    std::array<std::string, 256> entries;
    for (size_t byte = 0; byte < 256; ++byte) entries[byte] = fmt::format("<0x{:02X}>", byte);
    return entries;
  }();
  return kEntries;
}

}  // namespace

std::string ProtoBytes(unsigned field, std::string_view bytes) {
  return Varint(field << 3 | 2).append(Varint(bytes.size())).append(bytes);
}

std::string ProtoNumber(unsigned field, uint64_t value) { return Varint(field << 3) + Varint(value); }

std::string ProtoFloat(unsigned field, float value) {
  std::string bytes(sizeof(value), '\0');
  std::memcpy(bytes.data(), &value, sizeof(value));
  return Varint(field << 3 | 5) + bytes;
}

std::string Serialize(const MiniSentencePiece& model) {
  std::string bytes;
  for (const auto& piece : model.pieces) {
    bytes += ProtoBytes(1, ProtoBytes(1, piece.text) + ProtoFloat(2, piece.score) +
                               ProtoNumber(3, static_cast<uint64_t>(piece.type)));
  }
  bytes += ProtoBytes(2, ProtoNumber(3, model.model_type) + ProtoNumber(41, 1) + ProtoNumber(42, 2));
  bytes += ProtoBytes(3, ProtoBytes(2, model.character_map) + ProtoNumber(3, model.dummy_prefix ? 1 : 0) +
                             ProtoNumber(4, model.squash_spaces ? 1 : 0));
  return bytes;
}

std::vector<SentencePieceVocabulary::Entry> WithBytes(std::vector<SentencePieceVocabulary::Entry> pieces) {
  std::vector<SentencePieceVocabulary::Entry> all = {
      {"<unk>", 0, TokenType::kUnknown}, {"<s>", 0, TokenType::kControl}, {"</s>", 0, TokenType::kControl}};
  for (const std::string& entry : ByteEntries()) all.push_back({entry, 0, TokenType::kByte});
  all.insert(all.end(), pieces.begin(), pieces.end());
  return all;
}

}  // namespace quire::runner::tokenizer
