// A conversation as the values that Ollama passes to a model's Go template, and its rendering.
#pragma once

#include <ctime>
#include <span>
#include <string>
#include <string_view>

#include "api/base/error.h"
#include "api/base/request.h"
#include "runner/gotemplate/template.h"
#include "runner/jinja/template.h"
#include "runner/prompt/turns.h"

namespace quire::runner {

// .IsThinkSet, .Think and .ThinkLevel.
struct GoThinking {
  bool set = false;
  bool on = false;
  std::string level = {};
};

// A template that knows .Messages gets the conversation at once, with .System, .Tools and an empty .Response.
// One that does not is rendered once for each exchange with .System, .Prompt and .Response; where it does not
// say .Response itself, the answer goes to its end. Neighboring messages of one role are one. Either way the
// last exchange ends where the answer goes.
//
// Strings of the request are of Trust::kRequest, except roles that every chat knows. `suffix` is put behind
// the last message's content. kInvalidArgument: what the template says of the messages, or what in them is no
// UTF-8 or no JSON.
api::Result<jinja::TrackedText> RenderGoPrompt(const gotemplate::Template& parsed,
                                               std::span<const Turn> conversation,
                                               std::span<const api::Tool> tools, std::string_view suffix,
                                               const std::tm& now, const GoThinking& thinking = {});

// Fill in the middle between two texts: .Prompt and .Suffix. Both are of Trust::kRequest.
api::Result<jinja::TrackedText> RenderGoFim(const gotemplate::Template& parsed, std::string_view prefix,
                                            std::string_view suffix, const std::tm& now);

}  // namespace quire::runner
