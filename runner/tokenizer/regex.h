// A compiled pattern (PCRE2, just-in-time compiled where the system allows it).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "api/base/error.h"

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;

namespace quire::runner::tokenizer {

// Immutable; any thread.
class Regex {
 public:
  enum class Syntax : uint8_t { kOniguruma, kLiteral };

  // kBadModel gives the reason.
  static api::Result<Regex> Compile(std::string_view pattern, Syntax syntax);

  const pcre2_real_code_8* code() const { return code_.get(); }

 private:
  struct FreeCode {
    void operator()(pcre2_real_code_8* code) const;
  };
  explicit Regex(pcre2_real_code_8* code) : code_(code) {}

  std::unique_ptr<pcre2_real_code_8, FreeCode> code_;
};

// The working memory of matching; one per call, one thread.
class RegexMatcher {
 public:
  enum class Outcome : uint8_t { kMatch, kNoMatch, kGaveUp };
  struct Match {
    Outcome outcome = Outcome::kNoMatch;
    size_t begin = 0;
    size_t end = 0;
  };

  RegexMatcher();

  // The first match at or after `from`. kGaveUp: the pattern backtracks beyond the limits on this text.
  // REQUIRES: subject is valid UTF-8, from <= subject.size() is at a character.
  Match Find(const Regex& regex, std::string_view subject, size_t from);

 private:
  struct FreeMatchData {
    void operator()(pcre2_real_match_data_8* data) const;
  };
  struct FreeContext {
    void operator()(pcre2_real_match_context_8* context) const;
  };

  std::unique_ptr<pcre2_real_match_data_8, FreeMatchData> data_;
  std::unique_ptr<pcre2_real_match_context_8, FreeContext> context_;
};

}  // namespace quire::runner::tokenizer
