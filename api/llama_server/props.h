// The descriptions that llama.cpp's server gives of itself and of prompts: /props, /slots, /apply-template.
// And vLLM's /tokenizer_info. Errors as in the Ollama dialect.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "api/base/request.h"
#include "api/openai/chat.h"

namespace quire::api {

struct TemplateRequest {
  std::string model;         // empty = the one that is loaded
  openai::ChatRequest chat;  // of which the messages and tools count
};

// A body as of /v1/chat/completions; `model` may be left out.
Result<TemplateRequest> ParseApplyTemplate(std::string_view body);
// Only renders the messages of the request, behind the model's own.
Request ToRequest(TemplateRequest request, const ModelDefaults& defaults);

struct ModelProps {
  std::string model;  // shortest full name
  std::string path;   // of its weights
  std::string chat_template;
  bool sees_images = false;
  int32_t num_ctx = 0;  // tokens
  int32_t slots = 1;
  GenerationParams params = {};    // of a /completion that gives none
  std::string sampling_json = {};  // SamplingSources(); left out when empty
};
std::string EncodeProps(const ModelProps& props, std::string_view version);

// vLLM's /tokenizer_info: the members of `tokenizer_json` (ipc::Inspected), the template and the context.
std::string EncodeTokenizerInfo(std::string_view tokenizer_json, const std::string& chat_template,
                                int32_t num_ctx);

// A request in flight, or the place for another one.
struct SlotEntry {
  std::string model;
  int32_t num_ctx = 0;  // tokens
  bool is_processing = false;
};
std::string EncodeSlots(const std::vector<SlotEntry>& slots);

}  // namespace quire::api
