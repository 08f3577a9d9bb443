#include "runner/jinja/text_ops.h"

#include <algorithm>
#include <string_view>

#include "runner/jinja/show.h"

namespace quire::runner::jinja {
namespace {

// The parts of `untrusted` within [begin, end), moved to start at 0.
std::vector<ByteRange> RangesWithin(const std::vector<ByteRange>& untrusted, size_t begin, size_t end) {
  std::vector<ByteRange> within;
  auto range = std::partition_point(untrusted.begin(), untrusted.end(),
                                    [begin](const ByteRange& candidate) { return candidate.end <= begin; });
  for (; range != untrusted.end() && range->begin < end; ++range) {
    within.push_back({std::max(range->begin, begin) - begin, std::min(range->end, end) - begin});
  }
  return within;
}

}  // namespace

Value Strip(Runtime& runtime, const Value& self, const Value* chars, Side side) {
  const std::string_view text = self.as_view();
  runtime.budget().StepBytes(0);
  const bool spaces = chars == nullptr || chars->is_none();
  const std::string_view set = spaces ? std::string_view() : chars->as_view();
  const auto cuts = [&](std::string_view encoded, char32_t value) {
    if (spaces) return IsSpace(value);
    runtime.budget().StepBytes(set.size());
    return FindBytes(set, encoded, 0) != std::string_view::npos;
  };
  size_t begin = 0;
  size_t end = text.size();
  while (side != Side::kRight && begin < end) {
    const CodePoint first = CodePointAt(text, begin);
    if (!cuts(text.substr(begin, first.bytes), first.value)) break;
    begin += first.bytes;
  }
  while (side != Side::kLeft && end > begin) {
    const CodePoint last = CodePointBefore(text, end);
    if (!cuts(text.substr(end - last.bytes, last.bytes), last.value)) break;
    end -= last.bytes;
  }
  return runtime.Slice(self, begin, end);
}

Value Replace(Runtime& runtime, const Value& self, const Value& from, const Value& to, int64_t count) {
  const Text& text = self.as_text();
  const std::string_view bytes = text.bytes();
  const std::string_view wanted = from.as_view();
  uint64_t left = count < 0 ? static_cast<uint64_t>(-1) : static_cast<uint64_t>(count);
  runtime.budget().StepBytes(bytes.size());
  if (!wanted.empty() && FindBytes(bytes, wanted, 0) == std::string_view::npos) return self;
  TextBuilder out = runtime.NewText();
  size_t at = 0;
  if (wanted.empty()) {  // before every code point and at the end
    while (left > 0) {
      out.Append(to.as_text());
      --left;
      if (at == bytes.size()) break;
      const size_t next = at + CodePointAt(bytes, at).bytes;
      out.Append(text, at, next);
      at = next;
    }
  }
  while (!wanted.empty() && left > 0) {
    const size_t found = FindBytes(bytes, wanted, at);
    if (found == std::string_view::npos) break;
    out.Append(text, at, found);
    out.Append(to.as_text());
    at = found + wanted.size();
    --left;
  }
  out.Append(text, at, bytes.size());
  return Value(std::move(out).Finish(text.markup()));
}

void AppendInCase(TextBuilder& out, const Text& text, size_t begin, size_t end, Case to) {
  const std::vector<ByteRange> untrusted =
      text.untrusted().empty() ? std::vector<ByteRange>() : RangesWithin(text.untrusted(), begin, end);
  ForEachRun(std::string_view(text.bytes()).substr(begin, end - begin), untrusted,
             [&](std::string_view run, Trust trust) {
               std::string cased;
               const Charge charge(out.budget(), run.size());
               cased.reserve(run.size());
               for (size_t at = 0; at < run.size();) {
                 const CodePoint c = CodePointAt(run, at);
                 AppendCased(cased, c.value, to);
                 at += c.bytes;
               }
               out.Append(cased, trust);
             });
}

Value ChangeCase(Runtime& runtime, const Value& self, Case to) {
  TextBuilder out = runtime.NewText();
  AppendInCase(out, self.as_text(), 0, self.as_text().size(), to);
  return Value(std::move(out).Finish(self.as_text().markup()));
}

Value Capitalize(Runtime& runtime, const Value& self) {
  const Text& text = self.as_text();
  if (text.size() == 0) return self;
  const size_t first = CodePointAt(text.bytes(), 0).bytes;
  TextBuilder out = runtime.NewText();
  AppendInCase(out, text, 0, first, Case::kTitle);
  AppendInCase(out, text, first, text.size(), Case::kLower);
  return Value(std::move(out).Finish(text.markup()));
}

Value Join(Runtime& runtime, const Value& separator, const List& items) {
  const bool markup = separator.as_text().markup();
  TextBuilder out = runtime.NewText();
  for (size_t i = 0; i < items.items.size(); ++i) {
    runtime.budget().Step();
    if (i != 0) out.Append(separator.as_text());
    if (markup) {
      AppendEscaped(out, items.items[i]);
    } else {
      AppendStr(out, items.items[i]);
    }
  }
  return Value(std::move(out).Finish(markup));
}

std::vector<Value> SplitLines(Runtime& runtime, const Value& self, bool keep_ends) {
  const std::string_view text = self.as_view();
  runtime.budget().StepBytes(text.size());
  std::vector<Value> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = CodePointAt(text, at);
    const size_t line_end = at;
    at += c.bytes;
    if (!IsLineBreak(c.value)) continue;
    if (c.value == U'\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(runtime.Slice(self, begin, keep_ends ? at : line_end));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(runtime.Slice(self, begin, text.size()));
  return lines;
}

}  // namespace quire::runner::jinja
