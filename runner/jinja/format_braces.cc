// "{}: {count:>5}".format(name, count=3)
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "runner/jinja/compare.h"
#include "runner/jinja/format.h"
#include "runner/jinja/sequence.h"
#include "runner/jinja/show.h"
#include "runner/jinja/unicode.h"

namespace quire::runner::jinja {
namespace {

constexpr int kSpecDepthMax = 2;  // fields inside a field's format, as Python allows

// Reads digits at the front of text; false when there are none.
bool ConsumeDigits(std::string_view& text, int64_t& number) {
  if (text.empty() || text[0] < '0' || text[0] > '9') return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) Raise("too many decimal digits in format string");
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

bool ConsumeOneOf(std::string_view& text, std::string_view candidates, char& found) {
  if (text.empty() || candidates.find(text[0]) == std::string_view::npos) return false;
  found = text[0];
  text.remove_prefix(1);
  return true;
}

Conversion ParseSpec(std::string_view spec) {
  Conversion style;
  static constexpr std::string_view kAligns = "<>^=";
  char ignored = '\0';
  if (!spec.empty()) {
    const size_t first = CodePointAt(spec, 0).bytes;
    if (spec.size() > first && kAligns.find(spec[first]) != std::string_view::npos) {
      style.fill = spec.substr(0, first);
      style.align = spec[first];
      spec.remove_prefix(first + 1);
    } else {
      ConsumeOneOf(spec, kAligns, style.align);
    }
  }
  ConsumeOneOf(spec, "+- ", style.sign);
  style.alternate = ConsumeOneOf(spec, "#", ignored);
  style.zero = ConsumeOneOf(spec, "0", ignored);
  ConsumeDigits(spec, style.width);
  ConsumeOneOf(spec, ",_", style.grouping);
  if (ConsumeOneOf(spec, ".", ignored) && !ConsumeDigits(spec, style.precision)) {
    Raise("Format specifier missing precision");
  }
  if (spec.size() > 1) Raise("Invalid format specifier");
  if (!spec.empty()) style.type = spec[0];
  return style;
}

class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, const CallArguments& arguments, bool escapes)
      : runtime_(runtime), arguments_(arguments), escapes_(escapes) {}

  void Run(TextBuilder& out, const Text& pattern, int depth) {
    if (depth > kSpecDepthMax) Raise("Max string recursion exceeded");
    const std::string_view text = pattern.bytes();
    size_t at = 0;
    while (at < text.size()) {
      const size_t brace = std::min(text.find_first_of("{}", at), text.size());
      out.Append(pattern, at, brace);
      if (brace == text.size()) return;
      if (brace + 1 < text.size() && text[brace + 1] == text[brace]) {
        out.Append(pattern, brace, brace + 1);
        at = brace + 2;
        continue;
      }
      if (text[brace] == '}') Raise("Single '}' encountered in format string");
      const size_t end = FieldEnd(text, brace + 1);
      AppendField(out, pattern, brace + 1, end, depth);
      at = end + 1;
    }
  }

 private:
  static size_t FieldEnd(std::string_view text, size_t at) {
    for (int open = 1; at < text.size(); ++at) {
      if (text[at] == '{') ++open;
      if (text[at] == '}' && --open == 0) return at;
    }
    Raise("expected '}' before end of string");
  }

  void AppendField(TextBuilder& out, const Text& pattern, size_t begin, size_t end, int depth) {
    runtime_.budget().Step();
    const std::string_view field = std::string_view(pattern.bytes()).substr(begin, end - begin);
    // The name ends at the first "!" or ":" outside brackets.
    size_t name_end = 0;
    for (bool bracket = false; name_end < field.size(); ++name_end) {
      if (field[name_end] == '[') bracket = true;
      if (field[name_end] == ']') bracket = false;
      if (!bracket && (field[name_end] == '!' || field[name_end] == ':')) break;
    }
    Value value = Lookup(field.substr(0, name_end));
    std::string_view rest = field.substr(name_end);
    if (rest.starts_with("!")) {
      if (rest.size() < 2 || (rest.size() > 2 && rest[2] != ':'))
        Raise("expected ':' after conversion specifier");
      value = Convert(value, rest[1]);
      rest.remove_prefix(2);
    }
    if (rest.starts_with(":")) rest.remove_prefix(1);
    TextBuilder spec = runtime_.NewText();
    Run(spec, *MakeText(std::string(rest)), depth + 1);
    AppendValue(out, value, spec.bytes());
  }

  Value Convert(const Value& value, char how) {
    if (how == 's') return Value(Str(runtime_, value));
    if (how == 'r' || how == 'a') return Value(Repr(runtime_, value));
    Raise(fmt::format("Unknown conversion specifier '{}'", how));
  }

  Value Lookup(std::string_view name) {
    const size_t first_end = std::min(name.find_first_of(".["), name.size());
    Value value = Argument(name.substr(0, first_end));
    std::string_view path = name.substr(first_end);
    while (!path.empty()) {
      const bool attribute = path[0] == '.';
      path.remove_prefix(1);
      const size_t end = std::min(attribute ? path.find_first_of(".[") : path.find(']'), path.size());
      if (!attribute && end == path.size()) Raise("Missing ']' in format string");
      value = Step(value, path.substr(0, end), attribute);
      path.remove_prefix(attribute ? end : end + 1);
      if (!path.empty() && path[0] != '.' && path[0] != '[') {
        Raise("Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return value;
  }

  Value Step(const Value& value, std::string_view key, bool attribute) {
    if (key.empty()) Raise("Empty attribute in format string");
    if (attribute) return GetAttribute(runtime_, value, MakeText(std::string(key)), FindMethods(key));
    int64_t index = 0;
    std::string_view rest = key;
    if (ConsumeDigits(rest, index) && rest.empty()) return GetElement(runtime_, value, Value(index));
    return GetElement(runtime_, value, runtime_.MakeString(key));
  }

  Value Argument(std::string_view name) {
    int64_t index = 0;
    std::string_view rest = name;
    const bool numbered = ConsumeDigits(rest, index) && rest.empty();
    if (name.empty()) index = next_++;
    if (name.empty() || numbered) {
      if (static_cast<size_t>(index) < arguments_.positional.size()) {
        return arguments_.positional[static_cast<size_t>(index)];
      }
      Raise(fmt::format("Replacement index {} out of range for positional args tuple", index));
    }
    for (const auto& [key, value] : arguments_.named) {
      if (key->bytes() == name) return value;
    }
    Raise(fmt::format("no argument named '{}' for the format string", name));
  }

  void AppendValue(TextBuilder& out, const Value& value, std::string_view spec) {
    if (value.is_number() && !(value.kind() == Kind::kBool && spec.empty())) {
      return AppendConverted(out, value, ParseSpec(spec));
    }
    if (!spec.empty() && !value.is_string() && value.kind() != Kind::kUndefined &&
        value.kind() != Kind::kBool) {
      Raise(fmt::format("unsupported format string passed to {}.__format__", TypeName(value.type())));
    }
    const Conversion style = ParseSpec(spec);
    if ((style.type != '\0' && style.type != 's') || style.align == '=') {
      Raise(fmt::format("Unknown format code '{}' for object of type '{}'", style.type,
                        TypeName(value.type())));
    }
    if (!escapes_) return AppendConverted(out, *Str(runtime_, value), style);
    TextBuilder escaped = runtime_.NewText();
    AppendEscaped(escaped, value);
    AppendConverted(out, *std::move(escaped).Finish(), style);
  }

  Runtime& runtime_;
  const CallArguments& arguments_;
  bool escapes_;
  int64_t next_ = 0;
};

}  // namespace

Value FormatBraces(Runtime& runtime, const Value& pattern, const CallArguments& arguments) {
  const Text& text = pattern.as_text();
  TextBuilder out = runtime.NewText();
  BraceFormatter(runtime, arguments, text.markup()).Run(out, text, 0);
  return Value(std::move(out).Finish(text.markup()));
}

}  // namespace quire::runner::jinja
