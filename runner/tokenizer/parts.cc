#include "runner/tokenizer/parts.h"

#include <fmt/format.h>

#include <utility>

#include "api/base/utf8.h"

namespace quire::runner::tokenizer {

api::Result<void> AddToken(AddedToken token, TokenizerParts& parts) {
  if (!api::IsValidUtf8(token.content)) return api::Fail(api::ErrorCode::kBadModel, "not UTF-8");
  if (token.normalized) {
    token.content = Apply(parts.steps, Normalize(parts.normal_form, token.content), Before::kNothing);
    if (token.content.empty()) return {};  // no text holds it
  }
  if (token.content.empty() || token.content.size() > kAddedTokenBytesMax) {
    return api::Fail(api::ErrorCode::kBadModel,
                     fmt::format("{} bytes; must be 1 to {}", token.content.size(), kAddedTokenBytesMax));
  }
  (token.normalized ? parts.added_normalized : parts.added).Add(std::move(token));
  return {};
}

}  // namespace quire::runner::tokenizer
