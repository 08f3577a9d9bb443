// The output format of a request as a grammar; compiled once and cached.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "api/base/error.h"
#include "api/base/mutex.h"
#include "api/base/output_format.h"
#include "runner/constraint/format_memory.h"
#include "runner/constraint/grammar_expr.h"
#include "runner/constraint/json_grammar.h"
#include "runner/constraint/matcher.h"

namespace quire::runner::constraint {

// The whole answer. kInvalidArgument and kUnsupported name the request's field, and what of a schema and
// where.
api::Result<ExprRef> AnswerOf(const api::OutputFormat& format, const JsonStyle& style,
                              GrammarBuilder& builder);

// Who is to use a format.
struct FormatUser {
  std::string party = {};
  bool may_wait =
      false;  // Get() may throw WorkStopped with kFormatMemory: ask again when memory().MayBegin(party)
  bool resumed = false;  // its answer began in another runner: no size is too large for it
};

// Compiled grammars, and the errors of those that cannot be compiled, by their source. Those that requests
// use are shared, and stay; of the others the least recently used are evicted when all together exceed the
// budget. Any thread; several may compile at once.
//
// Three quarters of the budget are for grammars, one of which may have a third of that; the rest is for
// masks. Whether a grammar may be compiled is decided before its size is known, so that each thread that
// compiles may exceed the budget by one grammar.
class ConstraintCache {
 public:
  // Work units of compiling one grammar (runner/work): 0.2 to 0.6 s of CPU time. And its memory while it
  // lasts.
  static constexpr uint64_t kCompileUnitsMax = 60'000'000;
  static constexpr size_t kCompileBytesMax = size_t{128} << 20;

  static constexpr size_t kGrammarBytesMin = size_t{32} << 20;

  using MakeVocabulary = std::function<std::shared_ptr<const VocabularyIndex>()>;  // until it does not throw
  ConstraintCache(MakeVocabulary make_vocabulary, size_t budget_bytes)
      : make_vocabulary_(std::move(make_vocabulary)),
        memory_(std::make_shared<FormatMemory>(budget_bytes - budget_bytes / 4)),
        masks_(std::make_shared<MaskMemory>(budget_bytes / 4)) {}

  api::Result<std::shared_ptr<Constraint>> Get(const api::OutputFormat& format, const JsonStyle& style = {});
  // As Get(), of a grammar that the caller builds: `key` names it, `make` builds it when it is not cached.
  // kUnsupported when that takes more than kCompileUnitsMax or kCompileBytesMax, or the grammar is larger
  // than grammar_bytes_max().
  using MakeGrammar = std::function<api::Result<ExprRef>(GrammarBuilder& builder)>;
  api::Result<std::shared_ptr<Constraint>> Get(const std::string& key, const MakeGrammar& make,
                                               const FormatUser& user = {});

  const FormatMemory& memory() const { return *memory_; }
  const MaskMemory& masks() const { return *masks_; }
  // A third of all, but not less than a large set of tools takes where there is as much.
  size_t grammar_bytes_max() const {
    return std::max(memory_->bytes_max() / 3, std::min(memory_->bytes_max(), kGrammarBytesMin));
  }
  size_t size() const {
    const api::MutexLock lock(mutex_);
    return entries_.size();
  }

 private:
  using Compiled = api::Result<std::shared_ptr<Constraint>>;
  struct Entry {
    std::string key;
    Compiled compiled;
    std::weak_ptr<Constraint> in_use = {};  // what its users hold
  };
  // Nothing: it is to be compiled. Moves it to the front.
  std::optional<Compiled> Find(const std::string& key, const FormatUser& user) REQUIRES(mutex_);
  Compiled Use(Entry& entry, const FormatUser& user) REQUIRES(mutex_);
  void IndexVocabularyOnce();
  Compiled Compile(const MakeGrammar& make);
  void Evict() REQUIRES(mutex_);

  const MakeVocabulary make_vocabulary_;
  const std::shared_ptr<FormatMemory> memory_;
  const std::shared_ptr<MaskMemory> masks_;
  enum class VocabularyState : uint8_t { kNone, kIndexing, kDone };
  api::Mutex vocabulary_mutex_;
  std::condition_variable vocabulary_changed_;
  VocabularyState vocabulary_state_ GUARDED_BY(vocabulary_mutex_) = VocabularyState::kNone;
  std::shared_ptr<const VocabularyIndex> vocabulary_;  // once it is kDone
  mutable api::Mutex mutex_;
  std::list<Entry> entries_ GUARDED_BY(mutex_);  // the last used first
};

}  // namespace quire::runner::constraint
