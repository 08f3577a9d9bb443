// A cursor over text that holds literals, shared by the readers of calls that are not JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "api/json/type.h"

namespace quire::runner::output {

inline constexpr int kLiteralDepthMax = 100;  // nested lists and dicts

// Sets the members of one object, which was empty: the last value of a repeated key counts, at the place of
// the first. Time: n log n in their number.
class MemberWriter {
 public:
  // `object` outlives this and is changed by nobody else meanwhile.
  explicit MemberWriter(api::Json& object) : object_(object) {}
  void Set(std::string key, api::Json value);

 private:
  api::Json& object_;
  std::map<std::string, size_t> places_;
};

class LiteralReader {
 public:
  explicit LiteralReader(std::string_view text) : text_(text) {}

  bool ran_out() const { return ran_out_; }  // reading failed because the text ended
  void MarkTruncated() { ran_out_ = true; }
  bool at_end() const { return at_ == text_.size(); }
  std::string_view rest() const { return text_.substr(at_); }
  void Skip(size_t bytes) { at_ += bytes; }
  // A search of this many bytes beyond the cursor has found nothing; false once that is too much to search
  // on.
  void RecordSearch(size_t bytes) { searched_ += bytes; }
  bool MaySearch() const { return searched_ < kSearchBytesMax; }
  void SkipSpace();
  // Takes `expected` if it comes next, else leaves everything as it is; notes when the text ends before it.
  bool Consume(std::string_view expected);
  // Takes what comes before `mark`, and `mark`.
  std::optional<std::string_view> ConsumeUntil(std::string_view mark);
  // Takes letters, digits, and what else names are made of; may be empty.
  std::string_view ConsumeName();

  // A value as Python writes it, or JSON does: strings in single, double or triple quotes, numbers, True,
  // False, None, true, false, null, lists, tuples, dicts. Nothing: it is none.
  std::optional<api::Json> PythonValue(int depth = 0);
  // A string in the quotes that come next. REQUIRES: one comes next.
  std::optional<std::string> QuotedString();

 private:
  std::optional<api::Json> List(char end, int depth);
  std::optional<api::Json> Dict(int depth);
  std::optional<api::Json> Number();
  bool Escape(std::string& out);
  std::optional<char32_t> Hex(size_t digits);

  std::string_view text_;
  static constexpr size_t kSearchBytesMax = size_t{4} << 20;

  size_t at_ = 0;
  size_t searched_ = 0;
  bool ran_out_ = false;
};

}  // namespace quire::runner::output
