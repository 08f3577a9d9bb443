#include "runner/tokenizer/detokenizer.h"

#include <utility>

namespace quire::runner::tokenizer {

Detokenizer::Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, Special special)
    : tokenizer_(std::move(tokenizer)), special_(special) {}

std::string Detokenizer::Append(TokenId id) {
  if (special_ == Special::kSkip && tokenizer_->IsSpecial(id)) return {};
  return stream_.Append(tokenizer_->TokenBytes(id));
}

std::string Detokenizer::Flush() { return stream_.Flush(); }

}  // namespace quire::runner::tokenizer
