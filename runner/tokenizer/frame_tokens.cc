#include "runner/tokenizer/frame_tokens.h"

#include <algorithm>
#include <utility>

#include "runner/tokenizer/text_frame.h"

namespace quire::runner::tokenizer {

api::Result<FramedTokens> FramePair(const Tokenizer& tokenizer, std::vector<TokenId> first,
                                    std::vector<TokenId> second, size_t tokens_max) {
  const PairFrame& frame = tokenizer.pair_frame();
  if (frame.items.empty()) {
    return api::Fail(api::ErrorCode::kUnsupported, "the model's tokenizer does not know pairs of texts");
  }
  const auto special = static_cast<size_t>(frame.tokens());
  if (special > tokens_max) {
    return api::Fail(api::ErrorCode::kContextLengthExceeded, "the context has no room for a pair of texts");
  }
  const size_t room = tokens_max - special, whole = first.size() + second.size();
  FramedTokens framed;
  if (first.size() > room) first.resize(room);
  second.resize(std::min(second.size(), room - first.size()));
  framed.dropped = static_cast<int64_t>(whole - first.size() - second.size());
  framed.ids.reserve(special + first.size() + second.size());
  for (const PairFrame::Item& item : frame.items) {
    if (item.kind == PairFrame::Kind::kToken) {
      framed.ids.push_back(item.token);
    } else {
      const auto& text = item.kind == PairFrame::Kind::kFirst ? first : second;
      framed.ids.insert(framed.ids.end(), text.begin(), text.end());
    }
    framed.types.resize(framed.ids.size(), item.type);
  }
  return framed;
}

}  // namespace quire::runner::tokenizer
