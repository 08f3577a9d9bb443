// What a request asks its answer to be, as a grammar; compiled once and kept.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "api/base/error.h"
#include "api/base/output_format.h"
#include "runner/constraint/matcher.h"
#include "runner/constraint/parts.h"

namespace quire::runner::constraint {

// The whole answer. kInvalidArgument and kUnsupported name the request's field, and what of a schema and
// where.
api::Result<PartRef> AnswerOf(const api::OutputFormat& format, RuleBook& rules);

// Compiled grammars by what they were compiled from; those asked for longest ago go first when all together
// are beyond the budget. Whoever uses one keeps it alive. One thread.
class ConstraintCache {
 public:
  using MakeVocabulary = std::function<std::shared_ptr<const VocabularyIndex>()>;  // called at most once
  ConstraintCache(MakeVocabulary make_vocabulary, size_t budget_bytes)
      : make_vocabulary_(std::move(make_vocabulary)), budget_bytes_(budget_bytes) {}

  api::Result<std::shared_ptr<Constraint>> Get(const api::OutputFormat& format);
  // As Get(), of a grammar that the caller puts together: `key` names it, `make` gives it when it is not
  // there.
  using MakeParts = std::function<api::Result<PartRef>(RuleBook& rules)>;
  api::Result<std::shared_ptr<Constraint>> Get(const std::string& key, const MakeParts& make);

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
