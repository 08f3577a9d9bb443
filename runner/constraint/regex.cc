#include "runner/constraint/regex.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "api/base/utf8.h"

namespace quire::runner::constraint {
namespace {

constexpr int kDepthMax = 64;  // nested groups
constexpr uint32_t kRepeatMax = 10'000;
constexpr size_t kPatternBytesMax = size_t{16} << 10;

CodePoints DigitSet() { return {{'0', '9'}}; }
CodePoints WordSet() { return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}; }
CodePoints SpaceSet() {
  return {{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
          {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
}
CodePoints DotSet() { return CodePoints({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}).Complement(); }

// Recursive descent; after the first error everything gives Never().
class Parser {
 public:
  Parser(std::string_view pattern, Anchoring anchoring, ExprRef (*encode)(const CodePoints&))
      : search_(anchoring == Anchoring::kSearch), encode_(encode) {
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
    return whole;
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
      if (Consume('^')) {
        if (!top || !items.empty()) Unsupported("^ not at the beginning");
        begins = true;
      } else if (Consume('$')) {
        if (!top || !(AtEnd() || Sees('|'))) Unsupported("$ not at the end");
        ends = true;
      } else {
        items.push_back(Quantified());
      }
    }
    if (top && search_) {
      const ExprRef any = Repeat(encode_(CodePoints::All()), 0, std::nullopt);
      if (!begins) items.insert(items.begin(), any);
      if (!ends) items.push_back(any);
    }
    return Sequence(std::move(items));
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
    } else if (Sees('{')) {
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

  // {m}, {m,}, {m,n}.
  bool Counts(uint32_t& min, std::optional<uint32_t>& max) {
    Consume('{');
    const auto least = Number();
    if (!least) return Broken("a { that is not a quantifier (write \\{)"), false;
    min = *least;
    max = least;
    if (Consume(',')) max = Number();
    if (!Consume('}')) return Broken("a { that is not a quantifier (write \\{)"), false;
    if (max && *max < min) return Broken("quantifier with maximum below minimum"), false;
    if (min > kRepeatMax || max.value_or(0) > kRepeatMax) {
      return Unsupported(fmt::format("more than {} repetitions", kRepeatMax)), false;
    }
    return true;
  }

  ExprRef Atom() {
    if (Consume('(')) return Group();
    if (Consume('[')) return encode_(Class());
    if (Consume('.')) return encode_(DotSet());
    if (Consume('\\')) return encode_(Escape(false));
    if (Sees('*') || Sees('+') || Sees('?') || Sees('{')) {
      Broken("quantifier without operand");
      return Never();
    }
    const uint32_t c = pattern_[at_++];
    return encode_({{c, c}});
  }

  ExprRef Group() {
    if (Consume("?:")) {
    } else if (Consume("?<")) {
      if (Sees('=') || Sees('!')) Unsupported("look-behind");
      while (!AtEnd() && !Sees('>')) ++at_;
      if (!Consume('>')) Broken("unterminated group name");
    } else if (Consume("?=") || Consume("?!")) {
      Unsupported("look-ahead");
    } else if (Sees('?')) {
      Unsupported("a group with flags");
    }
    if (++depth_ > kDepthMax) Unsupported("groups nested too deeply");
    ExprRef inside = Alternation(false);
    --depth_;
    if (!Consume(')')) Broken("unterminated group");
    return inside;
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
        return DigitSet();
      case 'D':
        return DigitSet().Complement();
      case 'w':
        return WordSet();
      case 'W':
        return WordSet().Complement();
      case 's':
        return SpaceSet();
      case 'S':
        return SpaceSet().Complement();
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
        return Unsupported("word boundary"), CodePoints();
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
    CodePoints set(std::move(all));
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
  size_t at_ = 0;
  int depth_ = 0;
  std::optional<api::Error> error_;
};

}  // namespace

api::Result<ExprRef> Regex(std::string_view pattern, Anchoring anchoring,
                           ExprRef (*encode)(const CodePoints& set)) {
  if (pattern.size() > kPatternBytesMax) {
    return api::Fail(api::ErrorCode::kUnsupported,
                     fmt::format("the regular expression has more than {} bytes", kPatternBytesMax));
  }
  return Parser(pattern, anchoring, encode).Run();
}

}  // namespace quire::runner::constraint
