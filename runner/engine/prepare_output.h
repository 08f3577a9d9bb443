// What a request's wishes for thinking and tools make of its prompt, and of how the answer is read.
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

namespace quire::runner::engine {

struct PromptSource;

// One per request; used by one thread.
class AnswerFrame {
 public:
  // kUnsupported: the request has tools, or wants thinking, and the model knows none. `request` outlives
  // this.
  static api::Result<AnswerFrame> Of(const output::Format& format, const api::Request& request);

  const ThinkingSwitch& thinking() const { return thinking_; }

  // Looks at how a rendered prompt ends. Where the template begins thinking though there is to be none, ends
  // it there. The prompt that was looked at last counts.
  void CloseOrNote(std::vector<PromptSegment>& prompt);

  // Null where all of the answer is text.
  std::unique_ptr<output::Parser> MakeParser() const;

  // What the answer is held to; null where it is free (answer_grammar.h).
  api::Result<std::shared_ptr<constraint::Constraint>> ConstraintOf(const PromptSource& source) const;

 private:
  bool RendersPrompt() const;

  AnswerFrame(const output::Format& format, const api::Request& request)
      : format_(format), request_(&request) {}

  output::Format format_;
  const api::Request* request_;
  ThinkingSwitch thinking_;
  bool thinking_open_ = false;
};

}  // namespace quire::runner::engine
