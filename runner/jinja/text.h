// Strings of the template language: immutable UTF-8 that remembers which bytes came from the request.
//
// Invariants: bytes are valid UTF-8; `untrusted` is sorted, its ranges are not empty, do not overlap and do
// not touch. Ranges lie on code point borders. A text without untrusted bytes carries no ranges and costs
// nothing extra.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runner/jinja/budget.h"

namespace quire::runner::jinja {

struct ByteRange {  // [begin, end)
  size_t begin = 0;
  size_t end = 0;
  bool operator==(const ByteRange&) const = default;
};

enum class Trust : bool { kTemplate, kRequest };

class Text {
 public:
  Text(std::string bytes, std::vector<ByteRange> untrusted, bool markup, Charge charge)
      : bytes_(std::move(bytes)),
        untrusted_(std::move(untrusted)),
        markup_(markup),
        charge_(std::move(charge)) {}

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  const std::vector<ByteRange>& untrusted() const { return untrusted_; }
  bool markup() const { return markup_; }  // the `safe` filter: joining it with plain text escapes that text

 private:
  std::string bytes_;
  std::vector<ByteRange> untrusted_;
  bool markup_;
  Charge charge_;
};

using TextRef = std::shared_ptr<const Text>;

// A text outside any rendering: a literal of the template, or a value of the request.
TextRef MakeText(std::string bytes, Trust trust = Trust::kTemplate);

// Concatenates texts and tracks the positions of untrusted bytes. Its content is charged to the budget.
class TextBuilder {
 public:
  explicit TextBuilder(Budget& budget, size_t bytes_max = static_cast<size_t>(-1))
      : budget_(budget), bytes_max_(bytes_max), charge_(budget, 0) {}

  void Append(std::string_view bytes, Trust trust = Trust::kTemplate);
  void Append(const Text& text) { Append(text, 0, text.size()); }
  void Append(const Text& text, size_t begin, size_t end);  // bytes [begin, end) of text
  void AppendFill(size_t count, char fill);
  void AppendRepeated(const Text& text, size_t count);  // REQUIRES: text.size() * count does not overflow
  // From here back to `begin` is as untrusted as anything in it: for texts that show a structure as a whole.
  void SpreadUntrusted(size_t begin);

  size_t size() const { return bytes_.size(); }
  std::string_view bytes() const { return bytes_; }
  Budget& budget() { return budget_; }

  TextRef Finish(bool markup = false) &&;
  void Release(std::string& bytes, std::vector<ByteRange>& untrusted) &&;

 private:
  void Reserve(size_t bytes);
  void AddRange(size_t begin, size_t end);

  Budget& budget_;
  size_t bytes_max_;
  std::string bytes_;
  std::vector<ByteRange> untrusted_;
  Charge charge_;
};

// Walks a text in runs of equal trust: visit(std::string_view run, Trust).
template <class Visit>
void ForEachRun(std::string_view bytes, std::span<const ByteRange> untrusted, Visit visit) {
  size_t at = 0;
  for (const ByteRange& range : untrusted) {
    if (range.begin > at) visit(bytes.substr(at, range.begin - at), Trust::kTemplate);
    visit(bytes.substr(range.begin, range.end - range.begin), Trust::kRequest);
    at = range.end;
  }
  if (at < bytes.size()) visit(bytes.substr(at), Trust::kTemplate);
}

}  // namespace quire::runner::jinja
