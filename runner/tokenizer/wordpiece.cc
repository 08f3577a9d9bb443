#include "runner/tokenizer/wordpiece.h"

#include <algorithm>
#include <boost/unordered/unordered_flat_map.hpp>
#include <utility>

#include "api/base/utf8.h"
#include "runner/tokenizer/pre_tokenizer.h"
#include "runner/work/work_budget.h"

namespace quire::runner::tokenizer {

struct WordPieceModel::Tables {
  WordPieceDefinition definition;
  boost::unordered_flat_map<std::string_view, api::TokenId> begins, continues;  // views into the definition
  size_t longest = 0;                                                           // bytes of an entry
};

WordPieceModel::WordPieceModel(WordPieceDefinition definition) {
  auto tables = std::make_unique<Tables>();
  tables->definition = std::move(definition);
  for (const WordPieceDefinition::Entry& entry : tables->definition.entries) {
    (entry.continues ? tables->continues : tables->begins).emplace(entry.text, entry.id);
    tables->longest = std::max(tables->longest, entry.text.size());
  }
  tables_ = std::move(tables);
}

WordPieceModel::~WordPieceModel() = default;

void WordPieceModel::Encode(std::string_view piece, std::vector<api::TokenId>& ids) const {
  const size_t before = ids.size();
  const auto unknown = [&] {
    ids.resize(before);
    if (tables_->definition.unknown != kNoToken) ids.push_back(tables_->definition.unknown);
  };
  const size_t characters_max = tables_->definition.word_characters_max;
  if (piece.size() > 4 * characters_max || api::CountCodePoints(piece) > characters_max) return unknown();
  for (size_t begin = 0; begin < piece.size();) {
    const auto& entries = begin == 0 ? tables_->begins : tables_->continues;
    size_t end = std::min(piece.size(), begin + tables_->longest);
    auto found = entries.end();
    for (; end > begin && found == entries.end(); --end) {
      CountWork(1);
      if (end < piece.size() && api::IsContinuationByte(piece[end])) continue;
      found = entries.find(piece.substr(begin, end - begin));
      if (found != entries.end()) break;
    }
    if (found == entries.end()) return unknown();
    ids.push_back(found->second);
    begin = end;
  }
}

void SplitLikeBert(PreTokenizer& splits) {
  auto spaces = CompileSplit(R"(\s+)", Regex::Syntax::kOniguruma);
  auto marks = CompileSplit(R"([!-/:-@\[-`{-~\p{P}])", Regex::Syntax::kOniguruma);
  if (!spaces || !marks) return;  // both patterns compile
  spaces->behavior = SplitBehavior::kRemoved;
  splits.steps.push_back(*std::move(spaces));
  splits.steps.push_back(*std::move(marks));
}

}  // namespace quire::runner::tokenizer
