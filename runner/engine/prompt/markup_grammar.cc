#include "runner/engine/prompt/markup_grammar.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "api/base/ascii.h"
#include "runner/constraint/schema.h"

namespace quire::runner::engine {
namespace {

using constraint::ExprRef;

constexpr uint32_t kDigitsMax = 3;  // of a call's number

// `text` where every `mark` in it is `between`.
template <class Between>
ExprRef Joined(const tokenizer::Tokenizer& tokenizer, std::string_view text, std::string_view mark,
               const Between& between) {
  std::vector<ExprRef> parts;
  for (size_t at = text.find(mark); at != std::string_view::npos; at = text.find(mark)) {
    parts.push_back(constraint::Literal(MarkupBytes(tokenizer, text.substr(0, at))));
    parts.push_back(between());
    text.remove_prefix(at + mark.size());
  }
  parts.push_back(constraint::Literal(MarkupBytes(tokenizer, text)));
  return parts.size() == 1 ? parts[0] : constraint::Sequence(std::move(parts));
}

// Line breaks may be left out.
ExprRef TagText(const tokenizer::Tokenizer& tokenizer, std::string_view text) {
  return Joined(tokenizer, text, "\n", [] { return constraint::Optional(constraint::Literal("\n")); });
}

// Any text up to the tag `end`, and the tag.
ExprRef TextBefore(const tokenizer::Tokenizer& tokenizer, std::string_view end) {
  if (end.starts_with('\n')) end.remove_prefix(1);
  const std::string_view tag = end.substr(0, end.find('\n'));
  const ExprRef behind = TagText(tokenizer, end.substr(tag.size()));
  const std::string bytes = MarkupBytes(tokenizer, tag);
  if (bytes == tag) return constraint::Sequence({constraint::TextUntil(tag), behind});
  // A special token that the text must not spell out either: whoever reads the answer sees text only.
  return constraint::Sequence({constraint::TextWithout(tag), constraint::Literal(bytes), behind});
}

bool IsTaggedName(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return api::IsAsciiAlnum(c) || c == '_' || c == '.' || c == '-';
  });
}

}  // namespace

bool IsMarkup(const tokenizer::Tokenizer& tokenizer, api::TokenId id) {
  return tokenizer.IsSpecial(id) || output::IsMarkerToken(tokenizer.TokenBytes(id));
}

std::string MarkupBytes(const tokenizer::Tokenizer& tokenizer, std::string_view text) {
  const auto ids = tokenizer.Encode(text, tokenizer::SpecialTokens::kParse);
  std::string bytes;
  for (const api::TokenId id : ids ? *ids : std::vector<api::TokenId>()) {
    const auto token = tokenizer.TokenBytes(id);
    const size_t at = IsMarkup(tokenizer, id) && !token.empty() ? text.find(token) : std::string_view::npos;
    if (at == std::string_view::npos) continue;
    bytes += text.substr(0, at);
    bytes += constraint::SpecialTokenBytes(id);
    text.remove_prefix(at + token.size());
  }
  return bytes += text;
}

ExprRef MarkupText(const tokenizer::Tokenizer& tokenizer, std::string_view text) {
  return Joined(tokenizer, text, output::kCallNumber,
                [] { return constraint::Repeat(constraint::Byte('0', '9'), 1, kDigitsMax); });
}

api::Result<ExprRef> TaggedCall(const output::TaggedArguments& tags, std::string_view name,
                                const api::Json& parameters, constraint::Enforcement enforcement,
                                const tokenizer::Tokenizer& tokenizer, constraint::GrammarBuilder& builder) {
  if (!IsTaggedName(name)) {
    return api::Fail(api::ErrorCode::kUnsupported, "a tool whose name tags cannot hold");
  }
  const auto text = [&](std::string_view part) { return TagText(tokenizer, part); };
  api::Result<ExprRef> arguments = constraint::Nothing();
  if (!parameters.is_null()) {
    arguments = constraint::TaggedArguments(
        parameters, builder,
        {.before_name = text(tags.key),
         .before_value = text(tags.value),
         .after_value = text(tags.end),
         .before_text = text(tags.text_value.empty() ? tags.value : tags.text_value),
         .text = TextBefore(tokenizer, tags.end)},
        enforcement);
    if (!arguments) return arguments;
  }
  return constraint::Sequence({text(tags.head), constraint::Literal(name), text(tags.middle),
                               *std::move(arguments), text(tags.tail)});
}

}  // namespace quire::runner::engine
