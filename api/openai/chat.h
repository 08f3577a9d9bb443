// The OpenAI dialect: request bodies of /v1/chat/completions to a struct, events to reply bodies and
// server-sent events, /v1/models.
//
// A parser takes the whole body as it came. Unknown fields are logged; what is known but not done in this
// version is refused with kUnsupported. Errors name the field by its path.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "api/base/image_use.h"
#include "api/base/prompt.h"
#include "api/base/request.h"
#include "api/json/tool_fields.h"
#include "api/openai/choices.h"
#include "api/openai/template_fields.h"

namespace quire::api::openai {

struct ChatRequest {
  std::string model;              // as sent; replies echo it. Not empty
  std::vector<Message> messages;  // not empty
  ImageUse image_use;             // of the messages
  bool stream = false;
  bool include_usage = false;
  bool chunk_per_token = false;
  bool return_progress = false;    // chunks with "prompt_progress" before the first token
  bool timings_per_token = false;  // every chunk has "timings"
  Options options;  // temperature and top_p keep OpenAI's default 1 where absent; see ToRequest()
  std::vector<std::string> unknown_options;            // for the log
  std::optional<std::chrono::nanoseconds> keep_alive;  // < 0 = never expires
  std::string cache_salt;
  bool logprobs = false;
  int32_t top_logprobs = 0;
  ToolUse tools;
  TemplateFields rendering;
  int32_t n = 1;  // choices; >= 1
  std::optional<OutputFormat> format;
  int32_t prompt_logprobs = -1;  // as in ReplyHead
};

Result<ChatRequest> ParseChat(std::string_view body);

// OpenAI's: temperature 1 and top_p 1.
Options DefaultOptions();

// Defaults: those of the dialect, then the model's parameters, then the request's. Never cuts the prompt.
Request ToRequest(ChatRequest request, const ModelDefaults& defaults,
                  const Options& dialect = DefaultOptions());

// The choices of one prompt, each a request of its own: with a seed they draw from this one and those that
// follow it.
std::vector<Request> ToChoices(Request request, int32_t n);

class ChatEncoder : public ChoicesEncoder {
 public:
  explicit ChatEncoder(ReplyHead head);

 private:
  std::string EncodeDelta(Choice& choice, const TextDelta& delta, bool due) override;
  Json EncodeNothing(const Choice& choice) override;
  std::string EncodeEnd(Choice& choice) override;
  Json EncodeWhole(Choice& choice) override;
  void AddToBody(Json& body) override;
};

std::string ErrorBody(const Error& error);    // {"error":{"message","type","param","code"}}
std::string StreamError(const Error& error);  // the same as a server-sent event

struct ModelEntry {
  std::string id;  // shortest full form
  std::chrono::system_clock::time_point created;
  std::string owned_by = "library";
  int32_t context_length = 0;                  // of requests, tokens; 0 = not known: left out
  std::vector<std::string> capabilities = {};  // "completion", "embedding", "rerank", ...; empty: left out
};

std::string EncodeModels(const std::vector<ModelEntry>& models);  // /v1/models
std::string EncodeModel(const ModelEntry& model);                 // /v1/models/{id}

}  // namespace quire::api::openai
