// "%s: %d" % (name, count)
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>

#include "runner/jinja/compare.h"
#include "runner/jinja/format.h"
#include "runner/jinja/show.h"

namespace quire::runner::jinja {
namespace {

class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, const Value& pattern, const Value& arguments)
      : runtime_(runtime), pattern_(pattern.as_text()), arguments_(arguments), out_(runtime.NewText()) {}

  Value Run() {
    const std::string_view text = pattern_.bytes();
    size_t plain = 0;
    while ((at_ = text.find('%', plain)) != std::string_view::npos) {
      out_.Append(pattern_, plain, at_);
      ++at_;
      Convert();
      plain = at_;
    }
    out_.Append(pattern_, plain, text.size());
    const bool several = IsTuple(arguments_);
    const size_t given = several ? arguments_.as_list().items.size() : 1;
    // As in Python, what could be a mapping or a sequence may go unused.
    const bool may_go_unused =
        arguments_.is_dict() || arguments_.is_undefined() || (arguments_.is_list() && !several);
    if (next_ < given && !may_go_unused) Raise("not all arguments converted during string formatting");
    return Value(std::move(out_).Finish(pattern_.markup()));
  }

 private:
  char Peek() const { return at_ < pattern_.size() ? pattern_.bytes()[at_] : '\0'; }

  const Value& NextArgument() {
    if (named_) return *named_;
    if (IsTuple(arguments_)) {
      if (next_ < arguments_.as_list().items.size()) return arguments_.as_list().items[next_++];
    } else if (next_++ == 0) {
      return arguments_;
    }
    Raise("not enough arguments for format string");
  }

  int64_t ConsumeNumber() {
    if (Peek() == '*') {
      ++at_;
      const Value& value = NextArgument();
      if (!value.is_integral()) Raise("* wants int");
      return value.as_int();
    }
    int64_t number = 0;
    const char* const begin = pattern_.bytes().data();
    const auto [end, error] = std::from_chars(begin + at_, begin + pattern_.size(), number);
    if (error == std::errc::result_out_of_range) Raise("width too big");
    if (error != std::errc() || number < 0) return 0;
    at_ = static_cast<size_t>(end - begin);
    return number;
  }

  void ConsumeKey() {
    named_.reset();
    if (Peek() != '(') return;
    const size_t end = pattern_.bytes().find(')', at_);
    if (end == std::string::npos) Raise("incomplete format key");
    if (!arguments_.is_dict()) Raise("format requires a mapping");
    const std::string_view key = std::string_view(pattern_.bytes()).substr(at_ + 1, end - at_ - 1);
    const Value* found = arguments_.as_dict().Find(key);
    if (found == nullptr) Raise(fmt::format("format key '{}' is missing", key));
    named_ = *found;
    at_ = end + 1;
  }

  void Convert() {
    runtime_.budget().Step();
    ConsumeKey();
    Conversion style;
    style.align = '>';
    for (bool flags = true; flags;) {
      const char c = Peek();
      flags = c == '-' || c == '0' || c == '+' || c == ' ' || c == '#';
      if (!flags) break;
      ++at_;
      if (c == '-') style.align = '<';
      if (c == '0') style.zero = true;
      if (c == '#') style.alternate = true;
      if (c == '+' || (c == ' ' && style.sign == '-')) style.sign = c;
    }
    style.width = ConsumeNumber();
    if (style.width < 0) {
      style.align = '<';
      style.width = style.width == std::numeric_limits<int64_t>::min() ? 0 : -style.width;
    }
    if (Peek() == '.') {
      ++at_;
      style.precision = std::max<int64_t>(ConsumeNumber(), 0);
    }
    while (Peek() == 'h' || Peek() == 'l' || Peek() == 'L') ++at_;
    const char type = Peek();
    if (type == '\0') Raise("incomplete format");
    ++at_;
    if (type == '%') return out_.Append("%");
    ConvertOne(type, style, NextArgument());
  }

  void ConvertOne(char type, const Conversion& style, const Value& value) {
    switch (type) {
      case 's':
        return AppendText(Value(Str(runtime_, value)), style);
      case 'r':
      case 'a':
        return AppendText(Value(Repr(runtime_, value)), style);
      case 'c':
        if (value.is_string()) return AppendConverted(out_, value.as_text(), style);
        break;
      default:
        break;
    }
    RequireDefined(value);
    if (!value.is_number())
      Raise(fmt::format("%{} format: a number is required, not {}", type, TypeName(value.type())));
    AppendNumber(type, style, value);
  }

  void AppendText(const Value& text, const Conversion& style) {
    if (!pattern_.markup()) return AppendConverted(out_, text.as_text(), style);
    TextBuilder escaped = runtime_.NewText();
    AppendEscaped(escaped, text);
    AppendConverted(out_, *std::move(escaped).Finish(), style);
  }

  void AppendNumber(char type, Conversion style, const Value& value) {
    static constexpr std::string_view kInts = "diuoxXc";
    static constexpr std::string_view kFloats = "eEfFgG";
    if (style.zero && style.align == '>') style.align = '\0';
    style.type = type == 'i' || type == 'u' ? 'd' : type;
    if (kFloats.find(type) != std::string_view::npos) {
      return AppendConverted(out_, Value(value.as_double()), style);
    }
    if (kInts.find(type) == std::string_view::npos)
      Raise(fmt::format("unsupported format character '{}'", type));
    style.precision = -1;
    if (value.is_integral()) return AppendConverted(out_, value, style);
    const double whole = std::trunc(value.as_double());
    if (style.type != 'd' || !(whole >= -0x1p63 && whole < 0x1p63)) {
      Raise(fmt::format("%{} format: an integer is required, not float", type));
    }
    AppendConverted(out_, Value(static_cast<int64_t>(whole)), style);
  }

  Runtime& runtime_;
  const Text& pattern_;
  const Value& arguments_;
  TextBuilder out_;
  size_t at_ = 0;    // in pattern_, after what has been read
  size_t next_ = 0;  // argument
  std::optional<Value> named_;
};

}  // namespace

Value FormatPercent(Runtime& runtime, const Value& pattern, const Value& arguments) {
  return PercentFormatter(runtime, pattern, arguments).Run();
}

}  // namespace quire::runner::jinja
