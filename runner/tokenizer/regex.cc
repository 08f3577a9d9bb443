#include "runner/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <limits>
#include <new>
#include <string>

#include "runner/tokenizer/regex_syntax.h"

namespace quire::runner::tokenizer {
namespace {

constexpr size_t kPatternBytesMax = 16384;
constexpr uint32_t kHeapKibMax = 65536;
// Backtracking steps from one starting point: a run of n spaces may cost n of them before the right
// alternative is tried, so the limit grows with the text. It is there for patterns that are exponential.
constexpr uint64_t kMatchStepsBase = 10'000'000;
constexpr uint64_t kMatchStepsPerByte = 4;

std::string ErrorText(int code) {
  std::string text(256, '\0');
  const int length = pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR*>(text.data()), text.size());
  text.resize(length < 0 ? 0 : static_cast<size_t>(length));
  return text;
}

}  // namespace

void Regex::FreeCode::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }
void RegexMatcher::FreeMatchData::operator()(pcre2_real_match_data_8* data) const {
  pcre2_match_data_free(data);
}
void RegexMatcher::FreeContext::operator()(pcre2_real_match_context_8* context) const {
  pcre2_match_context_free(context);
}

api::Result<Regex> Regex::Compile(std::string_view pattern, Syntax syntax) {
  if (pattern.size() > kPatternBytesMax) {
    return api::Fail(api::ErrorCode::kBadModel, fmt::format("longer than {} bytes", kPatternBytesMax));
  }
  uint32_t options = PCRE2_UTF | PCRE2_UCP;
  std::string translated(pattern);
  if (syntax == Syntax::kLiteral) {
    options |= PCRE2_LITERAL;
    options &= ~static_cast<uint32_t>(PCRE2_UCP);  // not combinable, and without meaning for a literal
  } else {
    options |= PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
    auto result = TranslateOniguruma(pattern);
    if (!result) return std::unexpected(std::move(result.error()));
    translated = *std::move(result);
  }
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  if (!context) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                   options, &error, &offset, context.get());
  if (code == nullptr) return api::Fail(api::ErrorCode::kBadModel, ErrorText(error));
  // Without permission for executable memory the interpreter does the same, slower.
  static_cast<void>(pcre2_jit_compile(code, PCRE2_JIT_COMPLETE));
  return Regex(code);
}

RegexMatcher::RegexMatcher()
    : data_(pcre2_match_data_create(1, nullptr)), context_(pcre2_match_context_create(nullptr)) {
  if (!data_ || !context_) throw std::bad_alloc();
  pcre2_set_heap_limit(context_.get(), kHeapKibMax);
}

RegexMatcher::Match RegexMatcher::Find(const Regex& regex, std::string_view subject, size_t from) {
  const uint64_t steps = kMatchStepsBase + kMatchStepsPerByte * subject.size();
  pcre2_set_match_limit(
      context_.get(), static_cast<uint32_t>(std::min<uint64_t>(steps, std::numeric_limits<uint32_t>::max())));
  const auto match = [&](uint32_t options) {
    return pcre2_match(regex.code(), reinterpret_cast<PCRE2_SPTR>(subject.data()), subject.size(), from,
                       options | PCRE2_NO_UTF_CHECK, data_.get(), context_.get());
  };
  int count = match(0);
  // The interpreter keeps its backtracking points on the heap, where there is more room.
  if (count == PCRE2_ERROR_JIT_STACKLIMIT) count = match(PCRE2_NO_JIT);
  if (count == PCRE2_ERROR_NOMATCH) return {};
  if (count < 0) return {.outcome = Outcome::kGaveUp};
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data_.get());
  return {.outcome = Outcome::kMatch, .begin = ends[0], .end = ends[1]};
}

}  // namespace quire::runner::tokenizer
