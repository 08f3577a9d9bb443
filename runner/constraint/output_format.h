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
#include "api/base/fair/party.h"
#include "api/base/fair/quota.h"
#include "api/base/mutex.h"
#include "api/base/output_format.h"
#include "runner/constraint/grammar_expr.h"
#include "runner/constraint/json_grammar.h"
#include "runner/constraint/mask_memory.h"
#include "runner/constraint/matcher.h"

namespace quire::runner::constraint {

// The whole answer. kInvalidArgument and kUnsupported name the request's field, and what of a schema and
// where.
api::Result<ExprRef> AnswerOf(const api::OutputFormat& format, const JsonStyle& style,
                              GrammarBuilder& builder);

// Who is to use a format.
struct FormatUser {
  fair::PartyId party = {};  // for whom it counts while it is used, if nobody uses it yet
  bool may_wait = false;     // Get() may throw WorkStopped with kFormatMemory: ask again when MayBegin(party)
  bool resumed = false;      // its answer began in another runner: no size is too large for it
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
        grammars_max_(budget_bytes - budget_bytes / 4),
        in_use_({.large = grammars_max_, .party = grammars_max_ / 2, .leaves_room = true}),
        masks_(std::make_shared<MaskMemory>(budget_bytes / 4)) {}

  api::Result<std::shared_ptr<Constraint>> Get(const api::OutputFormat& format, const JsonStyle& style = {});
  // As Get(), of a grammar that the caller builds: `key` names it, `make` builds it when it is not cached.
  // kUnsupported when that takes more than kCompileUnitsMax or kCompileBytesMax, or the grammar is larger
  // than grammar_bytes_max().
  using MakeGrammar = std::function<api::Result<ExprRef>(GrammarBuilder& builder)>;
  api::Result<std::shared_ptr<Constraint>> Get(const std::string& key, const MakeGrammar& make,
                                               const FormatUser& user = {});

  // Whether a request of the party may begin to use a further format: the next party finds room, too.
  // REQUIRES for an end of waiting: what is in use is given back without a further format.
  bool MayBegin(const fair::PartyId& party) {
    return !fair::Quota::Lease(in_use_, party).RefusalFor(1).has_value();
  }
  size_t bytes_in_use() const { return in_use_.held(); }  // of grammars and their sources
  const MaskMemory& masks() const { return *masks_; }
  // A third of all, but not less than a large set of tools takes where there is as much.
  size_t grammar_bytes_max() const {
    return std::max(grammars_max_ / 3, std::min(grammars_max_, kGrammarBytesMin));
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
  void WaitUnlessItMayBegin(const FormatUser& user);
  void IndexVocabularyOnce();
  Compiled Compile(const MakeGrammar& make);
  void Evict() REQUIRES(mutex_);

  const MakeVocabulary make_vocabulary_;
  const size_t grammars_max_;
  fair::Quota in_use_;
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
