#include "server/registry/challenge.h"

#include <algorithm>
#include <optional>

#include "api/base/ascii.h"

namespace quire::server::registry {
namespace {

constexpr std::string_view kBlanks = " \t";

bool IsTokenCharacter(char c) {
  return api::IsAsciiAlnum(c) || std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

std::string_view ReadToken(std::string_view& text) {
  const auto end = std::ranges::find_if_not(text, IsTokenCharacter);
  const std::string_view token = text.substr(0, static_cast<size_t>(end - text.begin()));
  text.remove_prefix(token.size());
  return token;
}

void SkipAnyOf(std::string_view& text, std::string_view characters) {
  text.remove_prefix(std::min(text.find_first_not_of(characters), text.size()));
}

// REQUIRES: begins with a quote. Nothing when there is no second one.
std::optional<std::string> ReadQuoted(std::string_view& text) {
  std::string value;
  for (size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '"') {
      text.remove_prefix(i + 1);
      return value;
    }
    if (text[i] == '\\' && i + 1 < text.size()) ++i;
    value += text[i];
  }
  return std::nullopt;
}

std::string ReadUnquoted(std::string_view& text) {
  const std::string value(text.substr(0, text.find_first_of(", \t")));
  text.remove_prefix(value.size());
  return value;
}

}  // namespace

Challenge ParseChallenge(std::string_view field) {
  Challenge challenge;
  SkipAnyOf(field, kBlanks);
  challenge.scheme = api::AsciiLower(ReadToken(field));
  if (challenge.scheme.empty()) return challenge;
  while (true) {
    SkipAnyOf(field, " \t,");
    const std::string name = api::AsciiLower(ReadToken(field));
    SkipAnyOf(field, kBlanks);
    if (name.empty() || !field.starts_with('=')) return challenge;
    field.remove_prefix(1);
    SkipAnyOf(field, kBlanks);
    const auto value = field.starts_with('"') ? ReadQuoted(field) : ReadUnquoted(field);
    if (!value) return challenge;
    challenge.parameters[name] = *value;
  }
}

}  // namespace quire::server::registry
