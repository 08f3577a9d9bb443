#include "runner/tokenizer/vocabulary.h"

namespace quire::runner::tokenizer {

void Vocabulary::Set(api::TokenId id, std::string_view bytes, bool special) {
  const auto index = static_cast<size_t>(id);
  if (index >= entries_.size()) entries_.resize(index + 1);
  entries_[index] = {
      .offset = pool_.size(), .length = static_cast<uint32_t>(bytes.size()), .special = special};
  pool_ += bytes;
}

std::string_view Vocabulary::Bytes(api::TokenId id) const {
  if (!Contains(id)) return {};
  const Entry& entry = entries_[static_cast<size_t>(id)];
  return std::string_view(pool_).substr(entry.offset, entry.length);
}

bool Vocabulary::IsSpecial(api::TokenId id) const {
  return Contains(id) && entries_[static_cast<size_t>(id)].special;
}

}  // namespace quire::runner::tokenizer
