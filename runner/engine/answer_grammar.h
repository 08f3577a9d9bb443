// What an answer is held to, as one grammar: a format, calls of tools, both behind the thinking of a model
// that thinks.
#pragma once

#include <memory>
#include <string>

#include "api/base/error.h"
#include "api/base/request.h"
#include "runner/output/format.h"

namespace quire::runner::tokenizer {
class Tokenizer;
}
namespace quire::runner::constraint {
class Constraint;
class ConstraintCache;
}  // namespace quire::runner::constraint

namespace quire::runner::engine {

struct AnswerTerms {
  const api::Request& request;
  const std::string& tools_json;  // array in OpenAI's shape; empty: there are none
  const output::Format& format;   // of the model's answers
  bool rendered = false;          // a template rendered the prompt: the answer has the model's own form
  bool thinking_open = false;     // the prompt ends inside a block of thinking
  bool may_think = false;         // the answer may begin one
};

// Null where the answer is free. Where calls are forced the answer is calls; with a format it is that, or
// calls where there are tools too; where a tool is strict the answer is text, calls that hold its schema, or
// text and then such calls. kInvalidArgument, kUnsupported: the format, or the schema of a strict tool, is
// broken or cannot be enforced. `constraints`: of this model, on its
// thread.
api::Result<std::shared_ptr<constraint::Constraint>> HoldAnswer(const AnswerTerms& terms,
                                                                const tokenizer::Tokenizer& tokenizer,
                                                                constraint::ConstraintCache& constraints);

}  // namespace quire::runner::engine
