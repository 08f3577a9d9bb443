#include "runner/constraint/regex.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "api/base/utf8.h"
#include "runner/constraint/assertions.h"
#include "runner/constraint/character_classes.h"

namespace quire::runner::constraint {
namespace {

constexpr int kDepthMax = 64;  // nested groups
constexpr uint32_t kRepeatMax = 10'000;
constexpr size_t kPatternBytesMax = size_t{16} << 10;

CodePoints DotSet(Dot dot) {
  if (dot == Dot::kNoLineFeed) return CodePoints({{'\n', '\n'}}).Complement();
  return CodePoints({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}).Complement();
}

// Recursive descent; after the first error everything gives Never().
class Parser {
 public:
  Parser(std::string_view pattern, Anchoring anchoring, ExprRef (*encode)(const CodePoints&), bool* loosened,
         Dot dot)
      : search_(anchoring == Anchoring::kSearch), encode_(encode), loosened_(loosened), dot_(dot) {
    while (!pattern.empty()) {
      const api::CodePoint next = api::CodePointAt(pattern);
      pattern_.push_back(next.value);
      pattern.remove_prefix(next.bytes);
    }
  }

  api::Result<ExprRef> Run() {
    ExprRef whole = Alternation(true);
    if (!error_ && at_ < pattern_.size()) Broken("unmatched )");
    if (error_) return std::unexpected(std::move(*error_));
    return asserts_ ? ResolveAssertions(whole, encode_ == JsonCharacter) : whole;
  }

 private:
  bool AtEnd() const { return error_ || at_ >= pattern_.size(); }
  bool Sees(char c) const { return !AtEnd() && pattern_[at_] == static_cast<uint32_t>(c); }
  bool Consume(char c) {
    if (!Sees(c)) return false;
    ++at_;
    return true;
  }
  bool Consume(std::string_view text) {
    for (size_t i = 0; i < text.size(); ++i) {
      if (AtEnd() || at_ + i >= pattern_.size()) return false;
      if (pattern_[at_ + i] != static_cast<uint32_t>(text[i])) return false;
    }
    at_ += text.size();
    return true;
  }
  void Set(api::ErrorCode code, std::string_view problem, std::string_view what) {
    if (error_) return;
    error_ = api::Error{code, fmt::format("{}: {} at character {}", problem, what, at_), {}};
  }
  void Broken(std::string_view what) {
    Set(api::ErrorCode::kInvalidArgument, "invalid regular expression", what);
  }
  void Unsupported(std::string_view what) {
    Set(api::ErrorCode::kUnsupported, "unsupported regular expression", what);
  }

  ExprRef Alternation(bool top) {
    std::vector<ExprRef> branches;
    do {
      branches.push_back(Branch(top));
    } while (Consume('|'));
    return Choice(std::move(branches));
  }

  ExprRef Branch(bool top) {
    std::vector<ExprRef> items;
    bool begins = false;
    bool ends = false;
    while (!AtEnd() && !Sees('|') && !Sees(')')) {
      // Where they say no more than that the text is a match they need no automaton.
      if (ConsumeBegin()) {
        begins = begins || items.empty();
        if (!top || !items.empty()) items.push_back(Assert(Assertion::kBegin));
      } else if (ConsumeEnd()) {
        ends = top && (AtEnd() || Sees('|'));
        if (!ends) items.push_back(Assert(Assertion::kEnd));
      } else {
        // Flags and what is left out add nothing, so that an anchor behind them is still the first.
        if (ExprRef item = Quantified(); item != Nothing()) items.push_back(std::move(item));
      }
    }
    if (top && search_) {
      const ExprRef any = Repeat(encode_(CodePoints::All()), 0, std::nullopt);
      if (!begins) items.insert(items.begin(), any);
      if (!ends) items.push_back(any);
    }
    return Sequence(std::move(items));
  }

  bool ConsumeBegin() { return Consume('^') || Consume("\\A"); }
  bool ConsumeEnd() { return Consume('$') || Consume("\\Z") || Consume("\\z"); }
  ExprRef Assert(Assertion assertion) {
    asserts_ = true;
    return AssertionExpr(assertion);
  }

  ExprRef Quantified() {
    ExprRef item = Atom();
    uint32_t min = 1;
    std::optional<uint32_t> max = 1;
    if (Consume('*')) {
      min = 0;
      max.reset();
    } else if (Consume('+')) {
      max.reset();
    } else if (Consume('?')) {
      min = 0;
    } else if (SeesCounts()) {
      if (!Counts(min, max)) return item;
    } else {
      return item;
    }
    Consume('?');  // lazy: the same texts
    if (Sees('*') || Sees('+') || Sees('?')) Broken("two quantifiers in a row");
    return Repeat(item, min, max);
  }

  std::optional<uint32_t> Number() {
    std::optional<uint32_t> number;
    while (!AtEnd() && pattern_[at_] >= '0' && pattern_[at_] <= '9') {
      number = std::min(number.value_or(0) * 10 + (pattern_[at_++] - '0'), kRepeatMax + 1);
    }
    return number;
  }

  // Any other { is a character.
  bool SeesCounts() const {
    if (!Sees('{')) return false;
    size_t at = at_ + 1;
    const auto skip_digits = [&] {
      const size_t from = at;
      while (at < pattern_.size() && pattern_[at] >= '0' && pattern_[at] <= '9') ++at;
      return at > from;
    };
    if (!skip_digits()) return false;
    if (at < pattern_.size() && pattern_[at] == ',') {
      ++at;
      skip_digits();
    }
    return at < pattern_.size() && pattern_[at] == '}';
  }
  // {m}, {m,}, {m,n}. REQUIRES: SeesCounts().
  bool Counts(uint32_t& min, std::optional<uint32_t>& max) {
    Consume('{');
    min = Number().value_or(0);
    max = min;
    if (Consume(',')) max = Number();
    Consume('}');
    if (max && *max < min) return Broken("quantifier with maximum below minimum"), false;
    if (min > kRepeatMax || max.value_or(0) > kRepeatMax) {
      return Unsupported(fmt::format("more than {} repetitions", kRepeatMax)), false;
    }
    return true;
  }

  ExprRef Atom() {
    if (Consume('(')) return Group();
    if (Consume('[')) return encode_(Class());
    if (Consume('.')) return encode_(dot_all_ ? CodePoints::All() : DotSet(dot_));
    if (Consume("\\b")) return Assert(Assertion::kWordBoundary);
    if (Consume("\\B")) return Assert(Assertion::kNoWordBoundary);
    if (Consume('\\')) return encode_(Cased(Escape(false)));
    if (Sees('*') || Sees('+') || Sees('?') || SeesCounts()) {
      Broken("quantifier without operand");
      return Never();
    }
    const uint32_t c = pattern_[at_++];
    return encode_(Cased({{c, c}}));
  }
  CodePoints Cased(CodePoints set) const { return any_case_ ? WithBothCases(set) : std::move(set); }

  ExprRef Group() {
    // Flags hold up to the end of the group that they are in.
    const std::pair outside(any_case_, dot_all_);
    if (Consume("?:")) {
    } else if (Consume("?=") || Consume("?!")) {
      return LookAround("look-ahead");
    } else if (Consume("?<=") || Consume("?<!")) {
      return LookAround("look-behind");
    } else if (Consume("?<") || Consume("?P<")) {
      while (!AtEnd() && !Sees('>')) ++at_;
      if (!Consume('>')) Broken("unterminated group name");
    } else if (Consume('?')) {
      Flags();
      if (Consume(')')) return Nothing();  // for what follows
      if (!Consume(':')) Unsupported("a group of this kind");
    }
    ExprRef inside = Inside();
    std::tie(any_case_, dot_all_) = outside;
    return inside;
  }
  ExprRef Inside() {
    if (++depth_ > kDepthMax) Unsupported("groups nested too deeply");
    ExprRef inside = Alternation(false);
    --depth_;
    if (!Consume(')')) Broken("unterminated group");
    return inside;
  }
  ExprRef LookAround(std::string_view what) {
    if (loosened_ == nullptr) Unsupported(what);
    const bool asserts = asserts_;
    Inside();
    asserts_ = asserts;
    if (loosened_ != nullptr) *loosened_ = true;
    return Nothing();
  }
  void Flags() {
    bool on = true;
    for (; !AtEnd() && !Sees(')') && !Sees(':'); ++at_) {
      const uint32_t c = pattern_[at_];
      if (c == '-') {
        on = false;
      } else if (c == 'i') {
        any_case_ = on;
      } else if (c == 's') {
        dot_all_ = on;
      } else if (c != 'u' && c != 'a') {
        return Unsupported("a group of this kind");
      }
    }
  }

  uint32_t Hex(int digits) {
    uint32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      const uint32_t c = AtEnd() ? 0 : pattern_[at_++];
      if (c >= '0' && c <= '9') {
        value = value * 16 + (c - '0');
      } else if ((c | 0x20U) >= 'a' && (c | 0x20U) <= 'f') {
        value = value * 16 + ((c | 0x20U) - 'a' + 10);
      } else {
        Broken("escape without hexadecimal digits");
      }
    }
    return value;
  }

  uint32_t UnicodeEscape() {
    if (Consume('{')) {
      uint32_t value = 0;
      for (int i = 0; i < 6 && !Sees('}'); ++i) value = value * 16 + Hex(1);
      if (!Consume('}') || value > kCodePointLast) Broken("escape without hexadecimal digits");
      return value;
    }
    const uint32_t unit = Hex(4);
    if (unit < 0xD800 || unit > 0xDBFF || !Consume("\\u")) return unit;
    const uint32_t low = Hex(4);
    if (low < 0xDC00 || low > 0xDFFF) Broken("unpaired surrogate");
    return 0x10000 + ((unit - 0xD800) << 10U) + (low - 0xDC00);
  }

  CodePoints Escape(bool in_class) {
    if (AtEnd()) return Broken("trailing backslash"), CodePoints();
    const uint32_t c = pattern_[at_++];
    switch (c) {
      case 'd':
        return DigitClass();
      case 'D':
        return DigitClass().Complement();
      case 'w':
        return WordClass();
      case 'W':
        return WordClass().Complement();
      case 's':
        return SpaceClass();
      case 'S':
        return SpaceClass().Complement();
      case 'n':
        return {{'\n', '\n'}};
      case 'r':
        return {{'\r', '\r'}};
      case 't':
        return {{'\t', '\t'}};
      case 'f':
        return {{'\f', '\f'}};
      case 'v':
        return {{'\v', '\v'}};
      case '0':
        return {{0, 0}};
      case 'x':
        return One(Hex(2));
      case 'u':
        return One(UnicodeEscape());
      case 'b':
        if (in_class) return {{'\b', '\b'}};
        break;
      case 'a':
        return {{'\a', '\a'}};
      case 'p':
        return Category();
      case 'P':
        return Category().Complement();
      default:
        break;
    }
    const bool letter = (c | 0x20U) >= 'a' && (c | 0x20U) <= 'z';
    if (c >= '1' && c <= '9') {
      Unsupported("back reference");
    } else if (letter) {
      Unsupported(fmt::format("the escape \\{}", static_cast<char>(c)));
    }
    return One(c);
  }
  static CodePoints One(uint32_t c) { return {{c, c}}; }

  // Behind \p: {Name}, or one letter.
  CodePoints Category() {
    std::string name;
    if (Consume('{')) {
      while (!AtEnd() && !Sees('}')) name += static_cast<char>(pattern_[at_++] & 0x7FU);
      if (!Consume('}')) Broken("unterminated category");
    } else if (!AtEnd()) {
      name += static_cast<char>(pattern_[at_++] & 0x7FU);
    }
    auto set = CategoryClass(name);
    if (!set) Unsupported("this \\p{...}");
    return set ? *std::move(set) : CodePoints();
  }

  CodePoints Class() {
    const bool negated = Consume('^');
    std::vector<CodePoints::Range> all;
    while (!AtEnd() && !Sees(']')) {
      const CodePoints first = ClassItem();
      const bool ranges = Sees('-') && at_ + 1 < pattern_.size() && pattern_[at_ + 1] != ']';
      if (!ranges) {
        all.insert(all.end(), first.ranges().begin(), first.ranges().end());
        continue;
      }
      ++at_;
      const CodePoints last = ClassItem();
      if (!IsOne(first) || !IsOne(last)) {
        Broken("range between classes");
      } else if (last.ranges()[0].first < first.ranges()[0].first) {
        Broken("reversed range");
      } else {
        all.push_back({first.ranges()[0].first, last.ranges()[0].first});
      }
    }
    if (!Consume(']')) Broken("unterminated class");
    CodePoints set = Cased(CodePoints(std::move(all)));
    return negated ? set.Complement() : std::move(set);
  }
  CodePoints ClassItem() {
    if (Consume('\\')) return Escape(true);
    return AtEnd() ? CodePoints() : One(pattern_[at_++]);
  }
  static bool IsOne(const CodePoints& set) {
    return set.ranges().size() == 1 && set.ranges()[0].first == set.ranges()[0].last;
  }

  std::vector<uint32_t> pattern_;
  const bool search_;
  ExprRef (*const encode_)(const CodePoints&);
  bool* const loosened_;
  const Dot dot_;
  bool any_case_ = false;
  bool dot_all_ = false;
  bool asserts_ = false;  // somewhere
  size_t at_ = 0;
  int depth_ = 0;
  std::optional<api::Error> error_;
};

}  // namespace

api::Result<ExprRef> Regex(std::string_view pattern, Anchoring anchoring,
                           ExprRef (*encode)(const CodePoints& set), bool* loosened, Dot dot) {
  if (pattern.size() > kPatternBytesMax) {
    return api::Fail(api::ErrorCode::kUnsupported,
                     fmt::format("the regular expression has more than {} bytes", kPatternBytesMax));
  }
  return Parser(pattern, anchoring, encode, loosened, dot).Run();
}

}  // namespace quire::runner::constraint
