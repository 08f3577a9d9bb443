// The OpenAI dialect: request bodies of /v1/chat/completions to a struct, events to reply bodies and
// server-sent events, /v1/models.
//
// A parser takes the whole body as it came. Unknown fields are ignored; what is known but not done in this
// version is refused with kUnsupported. Errors name the field by its path.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "api/base/event.h"
#include "api/base/prompt.h"
#include "api/base/request.h"
#include "api/json/tool_fields.h"

namespace quire::api::openai {

struct ChatRequest {
  std::string model;              // as sent; replies echo it. Not empty
  std::vector<Message> messages;  // not empty
  bool stream = false;
  bool include_usage = false;
  bool chunk_per_token = false;
  Options options;  // temperature and top_p keep OpenAI's default 1 where absent; see ToRequest()
  std::vector<std::string> unknown_options;            // for the log
  std::optional<std::chrono::nanoseconds> keep_alive;  // < 0 = never expires
  std::string cache_salt;
  bool logprobs = false;
  int32_t top_logprobs = 0;
  ToolUse tools;
  Think think = Think::kUnset;
  int32_t n = 1;  // choices; >= 1
  std::optional<OutputFormat> format;
};

Result<ChatRequest> ParseChat(std::string_view body);

// Defaults: temperature 1 and top_p 1, then the model's parameters, then the request's. Never cuts the
// prompt.
Request ToRequest(ChatRequest request, const ModelDefaults& defaults);

// The choices of one prompt, each a request of its own: with a seed they draw from this one and those that
// follow it.
std::vector<Request> ToChoices(Request request, int32_t n);

// The fields that every chunk of one reply repeats.
struct ReplyHead {
  std::string id;  // "chatcmpl-..."; unique, made by the caller
  std::string model;
  std::chrono::system_clock::time_point created;
  bool stream = false;
  bool include_usage = false;
  bool chunk_per_token = false;   // every token has a chunk, with the usage of its choice so far
  size_t choices = 1;             // of all prompts
  size_t choices_per_prompt = 1;  // prompts follow each other
};

// The usage of a request with any number of choices: a prompt counts once.
struct UsageOfChoices {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t output_tokens = 0;
  int64_t drafted_tokens = 0, accepted_tokens = 0;  // by speculative decoding

  void Add(const Usage& usage, bool first_of_prompt);
};

// The reply to one request, streamed or not. One per request; not thread-safe.
class ChatEncoder {
 public:
  explicit ChatEncoder(ReplyHead head);

  // Bytes to write now, possibly none. Streamed: whole server-sent events; after the last choice's Finished
  // they end with "[DONE]". Not streamed: nothing until the last Finished, then the whole body. Failed gives
  // StreamError(), which fits only after the first byte of a stream; before it the reply is ErrorBody() with
  // HttpStatus(). REQUIRES: choice < the head's number of choices.
  std::string OnEvent(size_t choice, const Event& event);
  std::string OnEvent(const Event& event) { return OnEvent(0, event); }

 private:
  struct Choice {
    bool role_sent = false;
    Usage so_far;      // counted from the deltas
    TextDelta answer;  // all of it so far; stays empty when streaming
    size_t calls_sent = 0;
    std::optional<FinishReason> finished;
  };
  std::string OnText(size_t index, const TextDelta& delta);
  std::string OnFinished(size_t index, const Finished& finished);
  std::string Whole() const;

  ReplyHead head_;
  std::vector<Choice> choices_;
  UsageOfChoices usage_;
};

std::string ErrorBody(const Error& error);    // {"error":{"message","type","param","code"}}
std::string StreamError(const Error& error);  // the same as a server-sent event

struct ModelEntry {
  std::string id;  // shortest full form
  std::chrono::system_clock::time_point created;
  std::string owned_by = "library";
};

std::string EncodeModels(const std::vector<ModelEntry>& models);  // /v1/models
std::string EncodeModel(const ModelEntry& model);                 // /v1/models/{id}

}  // namespace quire::api::openai
