#include "runner/constraint/output_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/json/read.h"
#include "runner/constraint/code_points.h"
#include "runner/constraint/gbnf.h"
#include "runner/constraint/json_grammar.h"
#include "runner/constraint/regex.h"
#include "runner/constraint/schema.h"
#include "runner/work/work_budget.h"
#include "runner/work/work_memory.h"

namespace quire::runner::constraint {
namespace {

using Kind = api::OutputFormat::Kind;

constexpr size_t kTextBytesMax = size_t{1} << 20;
constexpr size_t kEntriesMax = 256;

api::Result<ExprRef> DocumentOf(const std::string& schema_text, GrammarBuilder& builder,
                                const JsonStyle& style) {
  const auto schema = api::ReadJson(schema_text);
  if (!schema) return std::unexpected(schema.error());
  auto value = JsonSchema(*schema, builder, style);
  if (!value) return value;
  return Document(std::move(*value), style);
}

api::Result<ExprRef> ChoiceOf(const std::string& list_text) {
  const auto list = api::ReadJson(list_text);
  if (!list) return std::unexpected(list.error());
  std::vector<ExprRef> choices;
  const bool strings = list->is_array() && !list->empty() &&
                       std::ranges::all_of(*list, [](const api::Json& text) { return text.is_string(); });
  if (!strings) return api::Fail(api::ErrorCode::kInvalidArgument, "must be a non-empty list of strings");
  for (const api::Json& text : *list) choices.push_back(Literal(text.get_ref<const std::string&>()));
  return Choice(std::move(choices));
}

api::Result<ExprRef> UnnamedAnswerOf(const api::OutputFormat& format, GrammarBuilder& builder) {
  if (format.text.size() > kTextBytesMax) {
    return api::Fail(api::ErrorCode::kUnsupported, fmt::format("more than {} bytes", kTextBytesMax));
  }
  const JsonStyle style = format.whitespace ? JsonStyle() : kCompactStyle;
  switch (format.kind) {
    case Kind::kJson:
      return Document(AnyJson(builder, style).value, style);
    case Kind::kJsonObject:
      return Document(AnyJson(builder, style).object, style);
    case Kind::kSchema:
      return DocumentOf(format.text, builder, style);
    case Kind::kRegex:
      return Regex(format.text, Anchoring::kWhole, Utf8);
    case Kind::kChoice:
      return ChoiceOf(format.text);
    case Kind::kGrammar:
      return Gbnf(format.text, builder);
  }
  return Never();
}

}  // namespace

api::Result<ExprRef> AnswerOf(const api::OutputFormat& format, GrammarBuilder& builder) {
  auto answer = UnnamedAnswerOf(format, builder);
  if (answer) return answer;
  api::Error error = std::move(answer.error());
  error.message = fmt::format("{}: {}", format.field, error.message);
  error.field = format.field;
  return std::unexpected(std::move(error));
}

api::Result<std::shared_ptr<Constraint>> ConstraintCache::Get(const api::OutputFormat& format) {
  auto constraint =
      Get(fmt::format("{}:{}:{}", static_cast<int>(format.kind), format.whitespace, format.text),
          [&format](GrammarBuilder& builder) { return AnswerOf(format, builder); });
  if (constraint || !constraint.error().field.empty()) return constraint;
  api::Error error = std::move(constraint.error());
  error.message = fmt::format("{}: {}", format.field, error.message);
  error.field = format.field;
  return std::unexpected(std::move(error));
}

std::optional<ConstraintCache::Compiled> ConstraintCache::Find(const std::string& key) {
  std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(entries_, key, &Entry::key);
  if (found == entries_.end()) return std::nullopt;
  entries_.splice(entries_.begin(), entries_, found);
  return entries_.front().compiled;
}

ConstraintCache::Compiled ConstraintCache::Compile(const MakeGrammar& make) {
  const WorkMemory memory(kCompileBytesMax);
  try {
    const WorkLimit limit(kCompileUnitsMax);
    GrammarBuilder builder;
    const auto whole = make(builder);
    if (!whole) return std::unexpected(whole.error());
    auto grammar = CompileGrammar(*whole, builder);
    if (!grammar) return std::unexpected(grammar.error());
    return std::make_shared<Constraint>(std::move(*grammar), vocabulary_);
  } catch (const WorkStopped& stopped) {
    if (stopped.reason != WorkStopped::Reason::kUnits) throw;
    return api::Fail(
        api::ErrorCode::kUnsupported,
        fmt::format("the format is too large: compiling it takes more than {} steps", kCompileUnitsMax));
  } catch (const std::bad_alloc&) {
    if (!memory.exceeded()) throw;
    return api::Fail(
        api::ErrorCode::kUnsupported,
        fmt::format("the format is too large: compiling it takes more than {} MiB", kCompileBytesMax >> 20U));
  }
}

api::Result<std::shared_ptr<Constraint>> ConstraintCache::Get(const std::string& key,
                                                              const MakeGrammar& make) {
  if (auto found = Find(key)) return *std::move(found);
  std::call_once(vocabulary_made_, [this] {
    const WorkBudget::Exempt once_per_model;
    vocabulary_ = make_vocabulary_();
  });
  Compiled compiled = Compile(make);
  std::lock_guard lock(mutex_);
  entries_.push_front({key, compiled});
  Evict();
  return compiled;
}

// The newest always stays.
void ConstraintCache::Evict() {
  const WorkMemory::Exempt of_other_requests;
  size_t bytes = 0;
  size_t kept = 0;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    bytes += (entry->compiled ? (*entry->compiled)->bytes() : 0) + entry->key.size();
    const bool fits = kept == 0 || (bytes <= budget_bytes_ && kept < kEntriesMax);
    entry = fits ? std::next(entry) : entries_.erase(entry);
    ++kept;
  }
}

}  // namespace quire::runner::constraint
