#include "runner/jinja/show.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "runner/jinja/unicode.h"

namespace quire::runner::jinja {
namespace {

void AppendReprEscape(TextBuilder& out, char32_t c, Trust trust) {
  if (c == U'\n') return out.Append("\\n", trust);
  if (c == U'\r') return out.Append("\\r", trust);
  if (c == U'\t') return out.Append("\\t", trust);
  if (c <= 0xFF) return out.Append(fmt::format("\\x{:02x}", static_cast<uint32_t>(c)), trust);
  if (c <= 0xFFFF) return out.Append(fmt::format("\\u{:04x}", static_cast<uint32_t>(c)), trust);
  out.Append(fmt::format("\\U{:08x}", static_cast<uint32_t>(c)), trust);
}

void AppendReprOfText(TextBuilder& out, const Text& text) {
  const std::string& all = text.bytes();
  const bool double_quotes = all.find('\'') != std::string::npos && all.find('"') == std::string::npos;
  const char quote = double_quotes ? '"' : '\'';
  out.AppendFill(1, quote);
  ForEachRun(all, text.untrusted(), [&](std::string_view run, Trust trust) {
    size_t plain = 0;  // start of the stretch that needs no escape
    for (size_t at = 0; at < run.size();) {
      const CodePoint c = CodePointAt(run, at);
      const bool backslash = c.value == U'\\' || c.value == static_cast<char32_t>(quote);
      if (!backslash && IsPrintable(c.value)) {
        at += c.bytes;
        continue;
      }
      out.Append(run.substr(plain, at - plain), trust);
      if (backslash) {
        const char escaped[] = {'\\', static_cast<char>(c.value)};
        out.Append(std::string_view(escaped, 2), trust);
      } else {
        AppendReprEscape(out, c.value, trust);
      }
      at += c.bytes;
      plain = at;
    }
    out.Append(run.substr(plain), trust);
  });
  out.AppendFill(1, quote);
}

void AppendItems(TextBuilder& out, const std::vector<Value>& items) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i != 0) out.Append(", ");
    AppendRepr(out, items[i]);
  }
}

void AppendRange(TextBuilder& out, const List& list) {
  const int64_t first = list.items.empty() ? 0 : list.items.front().as_int();
  const int64_t step = list.items.size() < 2 ? 1 : list.items[1].as_int() - first;
  const int64_t stop = list.items.empty() ? 0 : list.items.back().as_int() + step;
  out.Append(step == 1 ? fmt::format("range({}, {})", first, stop)
                       : fmt::format("range({}, {}, {})", first, stop, step));
}

void AppendReprOfList(TextBuilder& out, const List& list) {
  const auto wrapped = [&](std::string_view open, std::string_view close) {
    out.Append(open);
    AppendItems(out, list.items);
    out.Append(close);
  };
  switch (list.type) {
    case Type::kTuple:
      return wrapped("(", list.items.size() == 1 ? ",)" : ")");
    case Type::kRange:
      return AppendRange(out, list);
    case Type::kDictKeys:
      return wrapped("dict_keys([", "])");
    case Type::kDictValues:
      return wrapped("dict_values([", "])");
    case Type::kDictItems:
      return wrapped("dict_items([", "])");
    case Type::kGenerator:
      return out.Append("<generator object>");
    default:
      return wrapped("[", "]");
  }
}

void AppendReprOfDict(TextBuilder& out, const Dict& dict) {
  out.Append("{");
  bool first = true;
  for (const auto& [key, value] : dict.entries()) {
    if (!first) out.Append(", ");
    first = false;
    AppendRepr(out, key);
    out.Append(": ");
    AppendRepr(out, value);
  }
  out.Append("}");
}

// Namespaces may hold themselves, so their contents are not shown.
std::string ObjectRepr(const Object& object) { return fmt::format("<{} object>", TypeName(object.type())); }

}  // namespace

std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 40> buffer;
  const auto written =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific);
  const std::string_view scientific(buffer.data(), static_cast<size_t>(written.ptr - buffer.data()));
  const size_t mark = scientific.find('e');
  const int exponent = std::atoi(std::string(scientific.substr(mark + 1)).c_str());
  if (exponent < -4 || exponent >= 16) return std::string(scientific);
  const auto fixed =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed);
  std::string text(buffer.data(), fixed.ptr);
  if (text.find('.') == std::string::npos) text += ".0";
  return text;
}

void AppendStr(TextBuilder& out, const Value& value) {
  if (value.is_string()) return out.Append(value.as_text());
  if (value.is_undefined()) return;
  AppendRepr(out, value);
}

TextRef Str(Runtime& runtime, const Value& value) {
  if (value.is_string()) return value.text_ref();
  TextBuilder out = runtime.NewText();
  AppendStr(out, value);
  return std::move(out).Finish();
}

Value SoftStr(Runtime& runtime, const Value& value) {
  return value.is_string() ? value : Value(Str(runtime, value));
}

void AppendRepr(TextBuilder& out, const Value& value) {
  out.budget().Step();
  switch (value.kind()) {
    case Kind::kNone:
      return out.Append("None");
    case Kind::kBool:
      return out.Append(value.as_bool() ? "True" : "False");
    case Kind::kInt:
      return out.Append(fmt::format_int(value.as_int()).c_str());
    case Kind::kDouble:
      return out.Append(FloatRepr(value.as_double()));
    case Kind::kString: {
      const bool markup = value.as_text().markup();
      if (markup) out.Append("Markup(");
      AppendReprOfText(out, value.as_text());
      if (markup) out.Append(")");
      return;
    }
    case Kind::kList: {
      const size_t begin = out.size();
      AppendReprOfList(out, value.as_list());
      return out.SpreadUntrusted(begin);
    }
    case Kind::kDict: {
      const size_t begin = out.size();
      AppendReprOfDict(out, value.as_dict());
      return out.SpreadUntrusted(begin);
    }
    case Kind::kObject:
      return out.Append(ObjectRepr(value.as_object()));
    case Kind::kUndefined:
      return out.Append("Undefined");
  }
}

TextRef Repr(Runtime& runtime, const Value& value) {
  TextBuilder out = runtime.NewText();
  AppendRepr(out, value);
  return std::move(out).Finish();
}

void AppendEscaped(TextBuilder& out, const Value& value) {
  if (!value.is_string()) {
    TextBuilder plain(out.budget());
    AppendStr(plain, value);
    return AppendEscaped(out, Value(std::move(plain).Finish()));
  }
  const Text& text = value.as_text();
  if (text.markup()) return out.Append(text);
  ForEachRun(text.bytes(), text.untrusted(), [&](std::string_view run, Trust trust) {
    size_t plain = 0;
    for (size_t at = 0; at < run.size(); ++at) {
      std::string_view entity;
      if (run[at] == '&') entity = "&amp;";
      if (run[at] == '<') entity = "&lt;";
      if (run[at] == '>') entity = "&gt;";
      if (run[at] == '\'') entity = "&#39;";
      if (run[at] == '"') entity = "&#34;";
      if (entity.empty()) continue;
      out.Append(run.substr(plain, at - plain), trust);
      out.Append(entity, trust);
      plain = at + 1;
    }
    out.Append(run.substr(plain), trust);
  });
}

}  // namespace quire::runner::jinja
