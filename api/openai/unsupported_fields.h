// Fields of other servers that change what an answer is, and that this one cannot honor: they are refused by
// name. What no server's field is, is logged.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/json/fields.h"

namespace quire::api::openai {

enum class Route : uint8_t { kChat, kCompletions, kResponses, kEmbeddings, kLlamaServer };

// kUnsupported for the first field that is there with a value that means anything.
void RefuseUnsupported(Fields& body, Route route);

// Names of the members that nobody read, for the log; without those that are known to change no answer.
// REQUIRES: all other members were read.
void AddUnread(const Fields& body, std::vector<std::string>& unknown);

}  // namespace quire::api::openai
