// Reads the rules of a grammar notation. Internal to gbnf.cc and lark.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "runner/constraint/grammar_rules.h"

namespace quire::runner::constraint {

// What the notations have in common: alternatives of sequences of items that may be repeated. Recursive
// descent; after the first error it reads to the end without looking.
class RuleReader {
 public:
  virtual ~RuleReader() = default;

 protected:
  // `lines_after_bar`: an alternative may begin in the line after its '|'; otherwise it is empty there.
  RuleReader(std::string_view text, bool lines_after_bar) : left_(text), lines_after_bar_(lines_after_bar) {}

  // Blanks and comments; line breaks where a rule goes on behind them.
  virtual void SkipSpace(bool lines_too) = 0;
  virtual RuleRef Item() = 0;
  // The bounds of a repetition that is written with numbers; false: none follows.
  virtual bool Counts(uint32_t& min, std::optional<uint32_t>& max) = 0;

  bool AtEnd() const { return error_ || left_.empty(); }
  char Next() const { return AtEnd() ? '\0' : left_.front(); }
  bool Sees(std::string_view text) const { return !AtEnd() && left_.starts_with(text); }
  std::string_view left() const { return left_; }
  void Skip(size_t bytes);
  bool Consume(std::string_view text);
  void Broken(std::string_view what) { SetError(api::ErrorCode::kInvalidArgument, what); }
  void Unsupported(std::string_view what) { SetError(api::ErrorCode::kUnsupported, what); }
  void SetError(api::ErrorCode code, std::string_view what);

  size_t RuleOf(std::string_view name);
  void Define(std::string_view name, RuleRef body);
  // All rules; the first error, or a rule that is used and not defined.
  api::Result<std::vector<GrammarRule>> Finish();

  RuleRef Alternatives(bool nested);
  // Up to `close`, behind its opening.
  RuleRef Group(std::string_view close);
  std::optional<uint32_t> Number();
  // `digits` hexadecimal digits of a Unicode character.
  uint32_t Hex(int digits);
  RuleRef Repetition(RuleRef item, uint32_t min, std::optional<uint32_t> max);
  static RuleRef One(CodePoints set);
  RuleRef CallOf(std::string_view name);

 private:
  // A line that begins with '|' goes on with the rule before it.
  bool ConsumeBar(bool nested);
  RuleRef Items(bool nested);

  std::string_view left_;
  const bool lines_after_bar_;
  int line_ = 1;
  int depth_ = 0;
  std::vector<GrammarRule> rules_;
  std::map<std::string, size_t, std::less<>> numbers_;  // of rules, by name
  std::optional<api::Error> error_;
};

}  // namespace quire::runner::constraint
