// The output format of a request as a grammar; compiled once and cached.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "api/base/error.h"
#include "api/base/output_format.h"
#include "runner/constraint/grammar_expr.h"
#include "runner/constraint/matcher.h"

namespace quire::runner::constraint {

// The whole answer. kInvalidArgument and kUnsupported name the request's field, and what of a schema and
// where.
api::Result<ExprRef> AnswerOf(const api::OutputFormat& format, GrammarBuilder& builder);

// Compiled grammars by their source; the least recently used are evicted when all together exceed the budget.
// Users keep them alive. One thread.
class ConstraintCache {
 public:
  using MakeVocabulary = std::function<std::shared_ptr<const VocabularyIndex>()>;  // called at most once
  ConstraintCache(MakeVocabulary make_vocabulary, size_t budget_bytes)
      : make_vocabulary_(std::move(make_vocabulary)), budget_bytes_(budget_bytes) {}

  api::Result<std::shared_ptr<Constraint>> Get(const api::OutputFormat& format);
  // As Get(), of a grammar that the caller builds: `key` names it, `make` builds it when it is not cached.
  using MakeGrammar = std::function<api::Result<ExprRef>(GrammarBuilder& builder)>;
  api::Result<std::shared_ptr<Constraint>> Get(const std::string& key, const MakeGrammar& make);

  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<Constraint> constraint;
  };
  void Evict();

  const MakeVocabulary make_vocabulary_;
  const size_t budget_bytes_;
  std::shared_ptr<const VocabularyIndex> vocabulary_;
  std::list<Entry> entries_;  // the last used first
};

}  // namespace quire::runner::constraint
