// How a request for thinking and tools affects its prompt and the parsing of the answer.
#pragma once

#include <memory>
#include <vector>

#include "api/base/error.h"
#include "api/base/request.h"
#include "runner/output/format.h"
#include "runner/prompt/prompt_template.h"

namespace quire::runner::constraint {
class Constraint;
}
namespace quire::runner::tokenizer {
class Tokenizer;
}

namespace quire::runner::engine {

struct PromptContext;
struct ThinkingBudget;

// One per request; used by one thread.
class OutputPlan {
 public:
  // kUnsupported: the request has tools, or wants thinking, and the model knows none. `request` outlives
  // this.
  static api::Result<OutputPlan> Of(const output::Format& format, const api::Request& request);

  const ThinkingSwitch& thinking() const { return thinking_; }

  // Detects whether a rendered prompt ends inside thinking. If thinking is off, closes it there. The last
  // prompt counts.
  void DetectOpenThinking(std::vector<PromptSegment>& prompt);

  // Null where all of the answer is text.
  std::unique_ptr<output::Parser> MakeParser() const;

  // REQUIRES: the prompt is rendered.
  ThinkingBudget BudgetOf(const tokenizer::Tokenizer& tokenizer) const;

  // The constraint of the answer; null where it is unconstrained (answer_grammar.h).
  api::Result<std::shared_ptr<constraint::Constraint>> ConstraintOf(const PromptContext& context) const;

 private:
  bool RendersPrompt() const;
  bool MayThink() const;
  int32_t ThinkingTokensMax() const;  // -1: no bound

  OutputPlan(const output::Format& format, const api::Request& request)
      : format_(format), request_(&request) {}

  output::Format format_;
  const api::Request* request_;
  ThinkingSwitch thinking_;
  bool thinking_open_ = false;
};

}  // namespace quire::runner::engine
