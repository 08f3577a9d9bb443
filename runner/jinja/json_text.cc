// json.dumps() of template values.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "runner/jinja/compare.h"
#include "runner/jinja/show.h"
#include "runner/jinja/unicode.h"

namespace quire::runner::jinja {
namespace {

// What has an escape of one letter, and its letter.
constexpr std::string_view kEscaped = "\"\\\n\r\t\b\f";
constexpr std::string_view kLetters = "\"\\nrtbf";

std::string EscapeUnits(char32_t c) {
  if (c < 0x10000) return fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
  const auto offset = static_cast<uint32_t>(c - 0x10000);
  return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (offset >> 10), 0xDC00 + (offset & 0x3FF));
}

void AppendJsonRun(TextBuilder& out, std::string_view run, Trust trust, bool ensure_ascii) {
  size_t plain = 0;
  for (size_t at = 0; at < run.size();) {
    const char c = run[at];
    const auto byte = static_cast<unsigned char>(c);
    const bool escape = c == '"' || c == '\\' || byte < 0x20 || (ensure_ascii && byte >= 0x7F);
    if (!escape) {
      ++at;
      continue;
    }
    out.Append(run.substr(plain, at - plain), trust);
    const CodePoint point = CodePointAt(run, at);
    const size_t named = kEscaped.find(c);
    out.Append(
        named == std::string_view::npos ? EscapeUnits(point.value) : std::string{'\\', kLetters[named]},
        trust);
    at += point.bytes;
    plain = at;
  }
  out.Append(run.substr(plain), trust);
}

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, TextBuilder& out, const JsonStyle& style)
      : runtime_(runtime), out_(out), style_(style) {}

  void Write(const Value& value) {
    runtime_.budget().Step();
    switch (value.kind()) {
      case Kind::kNone:
        return out_.Append("null");
      case Kind::kBool:
        return out_.Append(value.as_bool() ? "true" : "false");
      case Kind::kInt:
        return out_.Append(fmt::format_int(value.as_int()).c_str());
      case Kind::kDouble:
        return out_.Append(Number(value.as_double()));
      case Kind::kString:
        return WriteString(value.as_text());
      case Kind::kList:
        if (value.type() == Type::kList || IsTuple(value)) return WriteList(value.as_list());
        break;
      case Kind::kDict:
        return WriteDict(value.as_dict());
      default:
        break;
    }
    Raise(fmt::format("Object of type {} is not JSON serializable", TypeName(value.type())));
  }

 private:
  static std::string Number(double value) {
    std::string text = FloatRepr(value);
    if (text == "nan") return "NaN";
    if (text == "inf") return "Infinity";
    if (text == "-inf") return "-Infinity";
    return text;
  }

  void WriteString(const Text& text) {
    out_.Append("\"");
    ForEachRun(text.bytes(), text.untrusted(), [this](std::string_view run, Trust trust) {
      AppendJsonRun(out_, run, trust, style_.ensure_ascii);
    });
    out_.Append("\"");
  }

  void NewLine() {
    if (!style_.indent) return;
    out_.Append("\n");
    for (int i = 0; i < level_; ++i) out_.Append(*style_.indent);
  }

  void Separate(bool first) {
    if (!first) out_.Append(style_.item_separator);
    NewLine();
  }

  void WriteList(const List& list) {
    if (list.items.empty()) return out_.Append("[]");
    out_.Append("[");
    ++level_;
    for (size_t i = 0; i < list.items.size(); ++i) {
      Separate(i == 0);
      Write(list.items[i]);
    }
    --level_;
    NewLine();
    out_.Append("]");
  }

  void WriteDict(const Dict& dict) {
    if (dict.entries().empty()) return out_.Append("{}");
    std::vector<const Value::Entry*> order;
    order.reserve(dict.entries().size());
    for (const Value::Entry& entry : dict.entries()) order.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(order.begin(), order.end(), [this](const Value::Entry* a, const Value::Entry* b) {
        return Less(runtime_, a->first, b->first);
      });
    }
    out_.Append("{");
    ++level_;
    bool first = true;
    for (const Value::Entry* entry : order) {
      Separate(first);
      first = false;
      WriteKey(entry->first);
      out_.Append(style_.key_separator);
      Write(entry->second);
    }
    --level_;
    NewLine();
    out_.Append("}");
  }

  void WriteKey(const Value& key) {
    if (key.is_string()) return WriteString(key.as_text());
    out_.Append("\"");
    Write(key);
    out_.Append("\"");
  }

  Runtime& runtime_;
  TextBuilder& out_;
  const JsonStyle& style_;
  int level_ = 0;
};

}  // namespace

void AppendJson(Runtime& runtime, TextBuilder& out, const Value& value, const JsonStyle& style) {
  const size_t begin = out.size();
  JsonWriter(runtime, out, style).Write(value);
  if (value.is_list() || value.is_dict()) out.SpreadUntrusted(begin);
}

}  // namespace quire::runner::jinja
