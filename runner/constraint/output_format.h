// The output format of a request as a grammar; compiled once and cached.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "api/base/error.h"
#include "api/base/output_format.h"
#include "runner/constraint/grammar_expr.h"
#include "runner/constraint/matcher.h"

namespace quire::runner::constraint {

// The whole answer. kInvalidArgument and kUnsupported name the request's field, and what of a schema and
// where.
api::Result<ExprRef> AnswerOf(const api::OutputFormat& format, GrammarBuilder& builder);

// Compiled grammars, and the errors of those that cannot be compiled, by their source; the least recently used are
// evicted when all together exceed the budget. Users keep them alive. Any thread; several may compile at once.
class ConstraintCache {
 public:
  // Work units of compiling one grammar (runner/work): 0.2 to 0.6 s of CPU time. And its memory while it lasts.
  static constexpr uint64_t kCompileUnitsMax = 60'000'000;
  static constexpr size_t kCompileBytesMax = size_t{128} << 20;

  using MakeVocabulary = std::function<std::shared_ptr<const VocabularyIndex>()>;  // called at most once
  ConstraintCache(MakeVocabulary make_vocabulary, size_t budget_bytes)
      : make_vocabulary_(std::move(make_vocabulary)), budget_bytes_(budget_bytes) {}

  api::Result<std::shared_ptr<Constraint>> Get(const api::OutputFormat& format);
  // As Get(), of a grammar that the caller builds: `key` names it, `make` builds it when it is not cached. kUnsupported
  // when that takes more than kCompileUnitsMax or kCompileBytesMax.
  using MakeGrammar = std::function<api::Result<ExprRef>(GrammarBuilder& builder)>;
  api::Result<std::shared_ptr<Constraint>> Get(const std::string& key, const MakeGrammar& make);

  size_t size() const {
    std::lock_guard lock(mutex_);
    return entries_.size();
  }

 private:
  using Compiled = api::Result<std::shared_ptr<Constraint>>;
  struct Entry {
    std::string key;
    Compiled compiled;
  };
  std::optional<Compiled> Find(const std::string& key);
  Compiled Compile(const MakeGrammar& make);
  void Evict();

  const MakeVocabulary make_vocabulary_;
  const size_t budget_bytes_;
  std::once_flag vocabulary_made_;
  std::shared_ptr<const VocabularyIndex> vocabulary_;  // once it is made
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // the last used first; guarded by mutex_
};

}  // namespace quire::runner::constraint
