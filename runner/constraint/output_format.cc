#include "runner/constraint/output_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
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

api::Result<ExprRef> UnnamedAnswerOf(const api::OutputFormat& format, const JsonStyle& style,
                                     GrammarBuilder& builder) {
  if (format.text.size() > kTextBytesMax) {
    return api::Fail(api::ErrorCode::kUnsupported, fmt::format("more than {} bytes", kTextBytesMax));
  }
  switch (format.kind) {
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

api::Result<ExprRef> AnswerOf(const api::OutputFormat& format, const JsonStyle& style,
                              GrammarBuilder& builder) {
  auto answer = UnnamedAnswerOf(format, style, builder);
  if (answer) return answer;
  api::Error error = std::move(answer.error());
  error.message = fmt::format("{}: {}", format.field, error.message);
  error.field = format.field;
  return std::unexpected(std::move(error));
}

api::Result<std::shared_ptr<Constraint>> ConstraintCache::Get(const api::OutputFormat& format,
                                                              const JsonStyle& style) {
  auto constraint = Get(fmt::format("{}:{}:{}", static_cast<int>(format.kind), style.spaces, format.text),
                        [&](GrammarBuilder& builder) { return AnswerOf(format, style, builder); });
  if (constraint || !constraint.error().field.empty()) return constraint;
  api::Error error = std::move(constraint.error());
  error.message = fmt::format("{}: {}", format.field, error.message);
  error.field = format.field;
  return std::unexpected(std::move(error));
}

void ConstraintCache::WaitUnlessItMayBegin(const FormatUser& user) {
  if (user.may_wait && !MayBegin(user.party)) throw WorkStopped{WorkStopped::Reason::kFormatMemory};
}

std::optional<ConstraintCache::Compiled> ConstraintCache::Find(const std::string& key,
                                                               const FormatUser& user) {
  const auto found = std::ranges::find(entries_, key, &Entry::key);
  if (found == entries_.end()) return std::nullopt;
  entries_.splice(entries_.begin(), entries_, found);
  return Use(entries_.front(), user);
}

namespace {

std::unexpected<api::Error> GrammarTooLarge(size_t bytes, size_t bytes_max) {
  return api::Fail(
      api::ErrorCode::kUnsupported,
      fmt::format("the format is too large: compiled it has {} KiB, and this model's formats may have {} "
                  "KiB each; raise --cache-bytes (QUIRE_CACHE_BYTES)",
                  bytes >> 10U, bytes_max >> 10U));
}

}  // namespace

ConstraintCache::Compiled ConstraintCache::Use(Entry& entry, const FormatUser& user) {
  if (!entry.compiled) return entry.compiled;
  const size_t bytes = (*entry.compiled)->grammar().bytes();
  if (bytes > grammar_bytes_max() && !user.resumed) return GrammarTooLarge(bytes, grammar_bytes_max());
  if (auto in_use = entry.in_use.lock()) return in_use;
  WaitUnlessItMayBegin(user);
  struct Used {
    fair::Quota::Lease lease;
    std::shared_ptr<Constraint> constraint;
  };
  const auto used = std::make_shared<Used>(fair::Quota::Lease(in_use_, user.party), *entry.compiled);
  used->lease.SetTo(bytes + entry.key.size());
  std::shared_ptr<Constraint> constraint(used, used->constraint.get());
  entry.in_use = constraint;
  return constraint;
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
    return std::make_shared<Constraint>(std::move(*grammar), vocabulary_, masks_);
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

api::Result<std::shared_ptr<Constraint>> ConstraintCache::Get(const std::string& key, const MakeGrammar& make,
                                                              const FormatUser& user) {
  {
    const api::MutexLock lock(mutex_);
    if (auto found = Find(key, user)) return *std::move(found);
  }
  WaitUnlessItMayBegin(user);
  IndexVocabularyOnce();
  Compiled compiled = Compile(make);
  // It has its memory now; what others began meanwhile does not matter.
  const FormatUser now{.party = user.party, .resumed = user.resumed};
  const api::MutexLock lock(mutex_);
  if (auto found = Find(key, now)) return *std::move(found);
  entries_.push_front({key, std::move(compiled)});
  Compiled used = Use(entries_.front(), now);
  Evict();
  return used;
}

// Who waits for another thread to do it counts as at work, and may be canceled.
void ConstraintCache::IndexVocabularyOnce() {
  constexpr auto kPatience = std::chrono::milliseconds(50);
  api::UniqueLock lock(vocabulary_mutex_);
  while (vocabulary_state_ == VocabularyState::kIndexing) {
    vocabulary_changed_.wait_for(lock, kPatience);
    CheckWork();
  }
  if (vocabulary_state_ == VocabularyState::kDone) return;
  vocabulary_state_ = VocabularyState::kIndexing;
  lock.unlock();
  std::shared_ptr<const VocabularyIndex> made;
  try {
    const WorkBudget::Exempt once_per_model;
    made = make_vocabulary_();
  } catch (...) {
    lock.lock();
    vocabulary_state_ = VocabularyState::kNone;
    vocabulary_changed_.notify_all();
    throw;
  }
  lock.lock();
  vocabulary_ = std::move(made);
  vocabulary_state_ = VocabularyState::kDone;
  vocabulary_changed_.notify_all();
}

// Those that are in use stay, so that who asks for one shares it; so does the newest.
void ConstraintCache::Evict() {
  const WorkMemory::Exempt of_other_requests;
  size_t bytes = in_use_.held();
  size_t unused = 0;
  for (auto entry = std::next(entries_.begin()); entry != entries_.end();) {
    if (!entry->in_use.expired()) {
      ++entry;
      continue;
    }
    bytes += entry->key.size() + (entry->compiled ? (*entry->compiled)->grammar().bytes() : 0);
    ++unused;
    const bool fits = bytes <= grammars_max_ && unused < kEntriesMax;
    entry = fits ? std::next(entry) : entries_.erase(entry);
  }
}

}  // namespace quire::runner::constraint
