// The constraint of an answer as one grammar: a format and tool calls, both after the thinking of a model
// that thinks.
#pragma once

#include <memory>
#include <span>

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

struct ConstraintInputs {
  const api::Request& request;
  std::span<const api::Tool> tools;
  const output::Format& format;  // of the model's answers
  bool rendered = false;         // a template rendered the prompt: the answer has the model's own markup
  bool thinking_open = false;    // the prompt ends inside a block of thinking
  bool may_think = false;        // the answer may begin one
  bool may_wait = false;         // for formats that others use: see constraint::FormatUser
  bool resumed = false;          // the answer began in another runner
};

// Null where the answer is unconstrained. With required tool calls the answer is tool calls; with a format it
// is that, or tool calls where there are tools too; otherwise it is what the model likes, up to the marker of
// a tool call: then come calls of the tools, with arguments that match their schemas (of tools that are not
// strict as far as those can be enforced). kInvalidArgument, kUnsupported: the format, or the schema of a
// strict tool, is invalid or cannot be enforced. `constraints`: of this model, on its thread.
api::Result<std::shared_ptr<constraint::Constraint>> CompileAnswerConstraint(
    const ConstraintInputs& inputs, const tokenizer::Tokenizer& tokenizer,
    constraint::ConstraintCache& constraints);

}  // namespace quire::runner::engine
