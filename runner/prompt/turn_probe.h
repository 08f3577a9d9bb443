// What a template refuses or drops, found by showing it small conversations.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "api/base/request.h"
#include "runner/prompt/turns.h"

namespace quire::runner {

struct TurnProbe {
  TurnRules rules;
  std::vector<std::string> notes;     // what is read differently, a line each
  std::vector<std::string> unserved;  // shapes that nothing helps with
};

// The prompt of a conversation with these rules.
using RenderProbe = std::function<api::Result<std::string>(
    std::span<const api::Message> messages, std::span<const api::Tool> tools, const TurnRules& rules)>;

// A rule is taken where a conversation is refused or a text of it missing without, and is not with it.
// `source` is the template's text. Bounded by a WorkLimit: what a template that loops shows by then counts.
TurnProbe ProbeTurnRules(std::string_view source, const RenderProbe& render);

// Rules under which a template has to show nothing but user and assistant turns in turn.
TurnRules PlainestRules(const TurnRules& rules);

}  // namespace quire::runner
