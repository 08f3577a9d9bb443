// The prefixes that an embedding model's files define for its tasks: "prompts" of config_sentence_transformers.json.
// None is added unless a request names it.
#pragma once

#include <map>
#include <string>

#include "api/base/error.h"

namespace quire::runner::engine {

// Immutable; any thread.
class SentencePrompts {
 public:
  SentencePrompts() = default;
  // Of the text of the file; empty: there is none. An invalid one is an error of the requests that name a prefix.
  explicit SentencePrompts(const std::string& text);

  // The prefix called `name` without regard to case. "query" and "search_query" are one, and so are "document",
  // "passage" and "search_document", which have no prefix where only others are defined. A name that is not defined: with
  // `required` kUnsupported, otherwise no prefix.
  api::Result<std::string> Find(const std::string& name, bool required) const;

 private:
  std::map<std::string, std::string> prefixes_;  // by lower-case name
  std::string problem_;                          // with the file; or empty
};

}  // namespace quire::runner::engine
