// Fields of chats about the model's template: its variables, thinking, and how the prompt ends.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/base/request.h"
#include "api/json/fields.h"

namespace quire::api::openai {

struct TemplateFields {
  Think think = Think::kUnset;
  bool think_optional = false;  // asked for with "enable_thinking": models that cannot think answer without
  int32_t thinking_tokens_max = -1;
  std::string arguments_json;  // see ChatPrompt
  PromptEnd end = PromptEnd::kAuto;
  bool hide_thinking = false;  // the reply leaves it out
};

// "chat_template_kwargs", "enable_thinking", "max_thinking_tokens", "add_generation_prompt" and
// "continue_final_message", and what other servers call the same: "think", "thinking", "reasoning",
// "thinking_budget", ... `effort`: what another field says of thinking. `messages`: of the same body.
TemplateFields GetTemplateFields(Fields& body, Think effort, const std::vector<Message>& messages);

void SetTemplateFields(TemplateFields fields, Request& request, ChatPrompt& prompt);

}  // namespace quire::api::openai
