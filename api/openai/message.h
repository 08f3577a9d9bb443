// An answer as OpenAI's chat completions show it: content, reasoning, tool calls.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "api/base/event.h"
#include "api/json/type.h"

namespace quire::api::openai {

// "message" of a whole answer.
Json MessageOf(const TextDelta& answer);

// The "delta" objects of one piece of it, at least one. A call's arguments come apart from its name, and
// calls are numbered through the whole answer: `calls_before` of them went out before.
std::vector<Json> DeltasOf(const TextDelta& delta, bool first, size_t calls_before);

// "stop", "length" or "tool_calls".
std::string_view FinishName(FinishReason reason, bool called);

}  // namespace quire::api::openai
