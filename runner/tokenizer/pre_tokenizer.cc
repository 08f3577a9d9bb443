#include "runner/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "api/base/utf8.h"
#include "runner/tokenizer/text_steps.h"
#include "runner/work/work_budget.h"

namespace quire::runner::tokenizer {
namespace {

constexpr uint64_t kUnitsPerMatch = 4;
constexpr size_t kBytesPerUnit = 16;

struct Part {
  Piece piece;
  bool matched = false;
};

// The groups of a number as matches, and what lies before them.
void AddGroups(const SplitStep& step, std::string_view text, Piece number, size_t& covered,
               std::vector<Part>& parts) {
  const auto starts = GroupStarts(step.groups, text.substr(number.begin, number.end - number.begin));
  const bool isolate = step.groups == DigitGroups::kIsolate;
  for (size_t i = 0; i < starts.size(); ++i) {
    const size_t begin = number.begin + starts[i];
    const size_t next = i + 1 < starts.size() ? number.begin + starts[i + 1] : number.end;
    const size_t end = isolate ? next : begin;
    if (covered < begin) parts.push_back({{covered, begin}, step.invert});
    parts.push_back({{begin, end}, !step.invert});
    covered = end;
  }
}

// The text as matches and what lies between them, end to end. A match may be empty; it still cuts.
void FindParts(const SplitStep& step, std::string_view text, RegexMatcher& matcher,
               std::vector<Part>& parts) {
  size_t covered = 0;
  size_t from = 0;
  bool any_match = false;
  while (from <= text.size()) {
    const RegexMatcher::Match match = matcher.Find(step.regex, text, from);
    if (match.outcome != RegexMatcher::Outcome::kMatch) break;
    CountWork(kUnitsPerMatch + (match.end - from) / kBytesPerUnit);
    if (step.groups != DigitGroups::kNone) {
      AddGroups(step, text, {match.begin, match.end}, covered, parts);
      from = match.end;
      continue;
    }
    if (match.begin == match.end && any_match && match.end == covered) {
      from += from < text.size() ? api::CodePointAt(text, from).bytes : 1;
      continue;
    }
    if (covered < match.begin) parts.push_back({{covered, match.begin}, step.invert});
    parts.push_back({{match.begin, match.end}, !step.invert});
    covered = from = match.end;
    any_match = true;
  }
  if (covered < text.size()) parts.push_back({{covered, text.size()}, step.invert});
}

// Applies `behavior` to the parts, left to right.
std::vector<Part> MergeParts(SplitBehavior behavior, const std::vector<Part>& parts) {
  std::vector<Part> merged;
  bool previous_matched = false;
  for (const Part& part : parts) {
    const bool joins = behavior == SplitBehavior::kContiguous ? part.matched == previous_matched
                                                              : part.matched && !previous_matched;
    if (joins && !merged.empty()) {
      merged.back().piece.end = part.piece.end;
    } else {
      merged.push_back(part);
    }
    previous_matched = part.matched;
  }
  return merged;
}

std::vector<Part> MergeWithNext(const std::vector<Part>& parts) {
  std::vector<Part> merged;
  bool previous_matched = false;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    if (part->matched && !previous_matched && !merged.empty()) {
      merged.back().piece.begin = part->piece.begin;
    } else {
      merged.push_back(*part);
    }
    previous_matched = part->matched;
  }
  std::reverse(merged.begin(), merged.end());
  return merged;
}

std::vector<Part> Behave(SplitBehavior behavior, std::vector<Part> parts) {
  switch (behavior) {
    case SplitBehavior::kIsolated:
      return parts;
    case SplitBehavior::kRemoved:
      std::erase_if(parts, [](const Part& part) { return part.matched; });
      return parts;
    case SplitBehavior::kMergedWithNext:
      return MergeWithNext(parts);
    case SplitBehavior::kMergedWithPrevious:
    case SplitBehavior::kContiguous:
      return MergeParts(behavior, parts);
  }
  return parts;
}

std::vector<Piece> CutWords(std::string_view text, const std::vector<Piece>& pieces) {
  std::vector<Piece> words;
  words.reserve(std::max(pieces.size(), text.size() / 5));
  for (const Piece& piece : pieces) {
    const std::string_view within = text.substr(0, piece.end);
    size_t begin = piece.begin;
    size_t after_mark = begin;  // where the last mark ended
    for (size_t mark = within.find(kSpaceMark, begin); mark != std::string_view::npos;
         mark = within.find(kSpaceMark, after_mark)) {
      CountWork(1);
      if (mark > after_mark) {
        words.push_back({begin, mark});
        begin = mark;
      }
      after_mark = mark + kSpaceMark.size();
    }
    words.push_back({begin, piece.end});
  }
  return words;
}

}  // namespace

api::Result<SplitStep> CompileSplit(std::string_view pattern, Regex::Syntax syntax) {
  const DigitGroupPattern* numbers = syntax == Regex::Syntax::kOniguruma ? FindDigitGroups(pattern) : nullptr;
  auto regex = Regex::Compile(numbers == nullptr ? pattern : numbers->numbers, syntax);
  if (!regex) return std::unexpected(std::move(regex.error()));
  return SplitStep{.regex = *std::move(regex),
                   .groups = numbers == nullptr ? DigitGroups::kNone : numbers->groups};
}

std::vector<Piece> PreTokenizer::Split(std::string_view text, RegexMatcher& matcher) const {
  std::vector<Piece> pieces;
  if (text.empty()) return pieces;
  pieces.push_back({0, text.size()});
  std::vector<Part> parts;
  for (const SplitStep& step : steps) {
    std::vector<Piece> next;
    next.reserve(pieces.size());
    for (const Piece& piece : pieces) {
      parts.clear();
      FindParts(step, text.substr(piece.begin, piece.end - piece.begin), matcher, parts);
      parts = Behave(step.behavior, std::move(parts));
      for (const Part& part : parts) {
        if (part.piece.begin == part.piece.end) continue;
        next.push_back({piece.begin + part.piece.begin, piece.begin + part.piece.end});
      }
    }
    pieces = std::move(next);
  }
  return cut_words ? CutWords(text, pieces) : pieces;
}

}  // namespace quire::runner::tokenizer
