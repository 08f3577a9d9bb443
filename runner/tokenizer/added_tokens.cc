#include "runner/tokenizer/added_tokens.h"

#include <algorithm>
#include <array>
#include <boost/unordered/unordered_flat_map.hpp>
#include <utility>

#include "api/base/utf8.h"
#include "runner/tokenizer/regex.h"

namespace quire::runner::tokenizer {
namespace {

// Unicode's White_Space property.
bool IsWhiteSpace(char32_t code_point) {
  switch (code_point) {
    case 0x20:
    case 0x85:
    case 0xA0:
    case 0x1680:
    case 0x2028:
    case 0x2029:
    case 0x202F:
    case 0x205F:
    case 0x3000:
      return true;
    default:
      return (code_point >= 0x09 && code_point <= 0x0D) || (code_point >= 0x2000 && code_point <= 0x200A);
  }
}

constexpr int32_t kNoEntry = -1;

// Whether a word character (Unicode's \w) stands at the text's end or beginning.
class WordBorder {
 public:
  explicit WordBorder(const Regex& word) : word_(word) {}

  bool WordEndsAt(std::string_view text, size_t position) {
    return position > 0 && IsWord(text, position - api::CodePointBefore(text, position).bytes);
  }
  bool WordBeginsAt(std::string_view text, size_t position) {
    return position < text.size() && IsWord(text, position);
  }

 private:
  bool IsWord(std::string_view text, size_t position) {
    const std::string_view rest = text.substr(position);
    const RegexMatcher::Match match = matcher_.Find(word_, rest.substr(0, api::CodePointAt(rest).bytes), 0);
    return match.outcome == RegexMatcher::Outcome::kMatch;
  }

  const Regex& word_;
  RegexMatcher matcher_;
};

size_t SkipSpaceBack(std::string_view text, size_t position, size_t floor) {
  while (position > floor) {
    const size_t previous = position - api::CodePointBefore(text, position).bytes;
    if (!IsWhiteSpace(api::CodePointAt(text, previous).value)) break;
    position = previous;
  }
  return std::max(position, floor);
}

size_t SkipSpace(std::string_view text, size_t position) {
  while (position < text.size() && IsWhiteSpace(api::CodePointAt(text, position).value)) {
    position += api::CodePointAt(text, position).bytes;
  }
  return position;
}

}  // namespace

void TrustedText::AddRun(size_t end, bool trusted) {
  if (end > (runs.empty() ? 0 : runs.back().end)) runs.push_back({.end = end, .trusted = trusted});
}

bool TrustedText::IsTrusted(size_t begin, size_t end) const {
  auto run = std::upper_bound(runs.begin(), runs.end(), begin,
                              [](size_t position, const Run& r) { return position < r.end; });
  for (; run != runs.end(); ++run) {
    if (!run->trusted) return false;
    if (run->end >= end) return true;
  }
  return false;
}

TrustedText TrustedText::Slice(size_t begin, size_t end) const {
  TrustedText slice{.text = text.substr(begin, end - begin), .runs = {}};
  auto run = std::upper_bound(runs.begin(), runs.end(), begin,
                              [](size_t position, const Run& r) { return position < r.end; });
  for (; run != runs.end(); ++run) {
    slice.runs.push_back({.end = std::min(run->end, end) - begin, .trusted = run->trusted});
    if (run->end >= end) break;
  }
  return slice;
}

struct AddedTokenFinder::Trie {
  boost::unordered_flat_map<uint64_t, int32_t> children;  // node << 8 | byte -> node
  std::vector<int32_t> token_at;                          // [nodes] index into tokens, or kNoEntry
  std::array<bool, 256> begins{};
  std::vector<AddedToken> tokens;
  std::optional<Regex> word;  // there is a single_word token

  int32_t Child(int32_t node, uint8_t byte) const {
    const auto found = children.find(static_cast<uint64_t>(node) << 8U | byte);
    return found == children.end() ? kNoEntry : found->second;
  }

  // The longest token at `position` that may be found there; null when there is none.
  const AddedToken* Longest(const TrustedText& text, size_t position) const {
    const AddedToken* longest = nullptr;
    int32_t node = 0;
    for (size_t at = position; at < text.text.size(); ++at) {
      node = Child(node, static_cast<uint8_t>(text.text[at]));
      if (node == kNoEntry) break;
      const int32_t index = token_at[static_cast<size_t>(node)];
      if (index == kNoEntry) continue;
      const AddedToken& token = tokens[static_cast<size_t>(index)];
      if (!token.special || text.IsTrusted(position, at + 1)) longest = &token;
    }
    return longest;
  }
};

AddedTokenFinder::AddedTokenFinder() : trie_(std::make_unique<Trie>()) {
  trie_->token_at.push_back(kNoEntry);
}
AddedTokenFinder::~AddedTokenFinder() = default;
AddedTokenFinder::AddedTokenFinder(AddedTokenFinder&&) noexcept = default;
AddedTokenFinder& AddedTokenFinder::operator=(AddedTokenFinder&&) noexcept = default;

bool AddedTokenFinder::empty() const { return trie_->tokens.empty(); }

void AddedTokenFinder::Add(AddedToken token) {
  int32_t node = 0;
  for (const char c : token.content) {
    const auto byte = static_cast<uint8_t>(c);
    int32_t child = trie_->Child(node, byte);
    if (child == kNoEntry) {
      child = static_cast<int32_t>(trie_->token_at.size());
      trie_->token_at.push_back(kNoEntry);
      trie_->children.emplace(static_cast<uint64_t>(node) << 8U | byte, child);
    }
    node = child;
  }
  int32_t& slot = trie_->token_at[static_cast<size_t>(node)];
  if (slot != kNoEntry) return;
  slot = static_cast<int32_t>(trie_->tokens.size());
  if (token.single_word && !trie_->word)
    trie_->word.emplace(Regex::Compile("\\w", Regex::Syntax::kOniguruma).value());
  trie_->begins[static_cast<uint8_t>(token.content[0])] = true;
  trie_->tokens.push_back(std::move(token));
}

std::vector<Stretch> AddedTokenFinder::Find(const TrustedText& trusted) const {
  const std::string_view text = trusted.text;
  std::vector<Stretch> stretches;
  std::optional<WordBorder> border;
  size_t plain_begin = 0;
  size_t at = 0;
  while (at < text.size() && !empty()) {
    const AddedToken* token =
        trie_->begins[static_cast<uint8_t>(text[at])] ? trie_->Longest(trusted, at) : nullptr;
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at;
    size_t end = at + token->content.size();
    at = end;
    if (token->single_word) {
      if (!border) border.emplace(*trie_->word);
      if (border->WordEndsAt(text, begin) || border->WordBeginsAt(text, end)) continue;
    }
    if (token->lstrip) begin = SkipSpaceBack(text, begin, plain_begin);
    if (token->rstrip) end = SkipSpace(text, end);
    if (plain_begin < begin) stretches.push_back({plain_begin, begin, std::nullopt});
    stretches.push_back({begin, end, token->id});
    plain_begin = end;
  }
  if (plain_begin < text.size()) stretches.push_back({plain_begin, text.size(), std::nullopt});
  return stretches;
}

}  // namespace quire::runner::tokenizer
