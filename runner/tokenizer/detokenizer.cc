#include "runner/tokenizer/detokenizer.h"

#include <string>
#include <string_view>
#include <utility>

namespace quire::runner::tokenizer {
namespace {

std::string WithoutSpaces(std::string_view bytes) {
  std::string text(bytes);
  std::erase(text, ' ');
  return text;
}

}  // namespace

Detokenizer::Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, Special special, StartAt start)
    : tokenizer_(std::move(tokenizer)),
      special_(special),
      at_start_(start == StartAt::kText && tokenizer_->leading_spaces() != LeadingSpaces::kKeep) {}

std::string Detokenizer::Append(TokenId id) {
  const bool special = tokenizer_->IsSpecial(id);
  if (special && special_ == Special::kSkip) return {};
  std::string_view bytes = tokenizer_->TokenBytes(id);
  if (at_start_ && tokenizer_->leading_spaces() == LeadingSpaces::kDropMarks) {
    at_start_ = false;
    return stream_.Append(special || tokenizer_->HasOwnSpaces(id) ? std::string(bytes)
                                                                  : WithoutSpaces(bytes));
  }
  if (at_start_ && !bytes.empty()) {
    const bool dropped = !special && bytes.front() == ' ';
    if (dropped) bytes.remove_prefix(1);
    at_start_ = dropped && bytes.empty() && tokenizer_->leading_spaces() == LeadingSpaces::kDropAll;
  }
  return stream_.Append(bytes);
}

std::string Detokenizer::Flush() { return stream_.Flush(); }

}  // namespace quire::runner::tokenizer
