// Merges as tokenizer files name them: by the texts of two tokens.
#pragma once

#include <expected>
#include <string>
#include <string_view>
#include <utility>

#include "runner/tokenizer/bpe.h"

namespace quire::runner::tokenizer {

// The merge of two texts; `ids` is a map from text to id. Else the first text, cut, that it lacks: of the two
// and of both together.
template <class Ids>
std::expected<Merge, std::string> FindMerge(const Ids& ids, std::string_view left, std::string_view right) {
  const std::string merged = std::string(left).append(right);
  Merge merge;
  for (const auto& [part, id] : {std::pair<std::string_view, api::TokenId*>{left, &merge.left},
                                 {right, &merge.right},
                                 {merged, &merge.merged}}) {
    const auto known = ids.find(part);
    if (known == ids.end()) return std::unexpected(std::string(part.substr(0, 64)));
    *id = known->second;
  }
  return merge;
}

}  // namespace quire::runner::tokenizer
