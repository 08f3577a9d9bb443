// Parsing shared by the request bodies of all dialects.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/limits.h"
#include "api/base/request.h"
#include "api/json/fields.h"
#include "api/json/type.h"

namespace quire::api {

// A body as an object. Errors: "missing request body", not JSON, not an object, too large.
Result<Json> ReadBody(std::string_view body);

// "model", or "name" as old clients say; an empty one is the error "model is required".
std::string GetModel(Fields& body, bool name_too = false);
// The same, empty where the body names none. A longer text than any name is refused before it is copied and
// logged.
std::string GetModelIfAny(Fields& body, bool name_too = false);

// A Go duration or a number of seconds; < 0 = never expires.
std::optional<std::chrono::nanoseconds> GetKeepAlive(Fields& body);

int32_t GetTopLogprobs(Fields& body);

// "cache_salt": requests share cached prefixes only with those of the same one.
std::string GetCacheSalt(Fields& body);

// "messages", each read by `get`, which takes the Fields of one. Bounds messages and tool calls together.
class MessageList {
 public:
  explicit MessageList(Fields& body) : body_(body) {}
  template <class GetMessage>
  std::vector<Message> Get(GetMessage get);

 private:
  const Json* FindMessages(size_t& count);
  static const Json& At(const Json& list, size_t i);
  bool Count(const Message& message);

  Fields& body_;
  size_t counted_ = 0;
};

// "role": a string, required; lower-cased.
std::string GetRole(Fields& message);

// The arguments of a call in its history: JSON in our form where the text is an object, else the text.
std::string ArgumentsOfText(std::string text);
// {"name", "arguments"} of a call in the history.
ToolCall GetFunction(Fields& function);

// "tool_calls" of an earlier answer; `arguments` may be an object or its JSON text.
std::vector<ToolCall> GetToolCalls(Fields& message);

// Whether the member has a value: not absent, null, false, "", [] or {}.
bool HasValue(Fields& fields, std::string_view name);

template <class GetMessage>
std::vector<Message> MessageList::Get(GetMessage get) {
  std::vector<Message> messages;
  size_t count = 0;
  const Json* list = FindMessages(count);
  messages.reserve(std::min(count, kMessagesMax));
  for (size_t i = 0; i < count && body_.ok(); ++i) {
    Fields message(At(*list, i), body_.PathOf("messages[" + std::to_string(i) + "]"), body_.error());
    messages.push_back(get(message));
    if (!Count(messages.back())) break;
  }
  return messages;
}

}  // namespace quire::api
