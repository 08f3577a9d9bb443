// The Ollama dialect: request bodies of /api/generate, /api/chat and /api/show to structs, events to reply
// bodies and NDJSON lines. /api/tags and its like are in ollama_lists.h.
//
// A parser takes the whole body as it came. Unknown fields are ignored; what is known but not done in this
// version is refused with kUnsupported. Errors name the field by its path.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "api/base/event.h"
#include "api/base/image_use.h"
#include "api/base/prompt.h"
#include "api/base/reply_encoder.h"
#include "api/base/request.h"
#include "api/json/timings.h"
#include "api/json/tool_fields.h"

namespace quire::api::ollama {

// Fields that /api/generate and /api/chat share.
struct CommonRequest {
  std::string model;  // as sent; replies echo it. Not empty
  bool stream = true;
  std::optional<std::chrono::nanoseconds> keep_alive;  // < 0 = never expires
  Options options;
  std::vector<std::string> unknown_options;  // for the log
  bool truncate = true;
  bool shift = true;
  bool logprobs = false;
  int32_t top_logprobs = 0;
  std::string cache_salt;
  Think think = Think::kUnset;
  std::optional<OutputFormat> format;
  bool return_progress = false;  // of a stream: lines with "prompt_progress" until the first token
};

struct GenerateRequest : CommonRequest {
  std::string prompt;       // empty, no suffix and no images = only load, or unload when keep_alive is 0
  std::string suffix;       // if set, fill in the middle between `prompt` and this
  std::string system;       // replaces the model's unless empty
  std::string go_template;  // the same
  bool raw = false;
  std::vector<TokenId> context;
  std::vector<Image> images;  // of the prompt
  ImageUse image_use;
};

struct ChatRequest : CommonRequest {
  std::vector<Message> messages;  // empty = only load, or unload when keep_alive is 0
  ImageUse image_use;             // of the messages
  ToolUse tools;
};

struct ShowRequest {
  std::string model;
  bool verbose = false;
  bool check = false;        // whether the model would load here
  std::string system;        // shown instead of the model's unless empty
  std::string options_json;  // object shown over the model's parameters, or empty
};

Result<GenerateRequest> ParseGenerate(std::string_view body);
Result<ChatRequest> ParseChat(std::string_view body);
Result<ShowRequest> ParseShow(std::string_view body);

// REQUIRES: a prompt (messages) that is not empty.
Request ToRequest(GenerateRequest request, const ModelDefaults& defaults);
Request ToRequest(ChatRequest request, const ModelDefaults& defaults);

enum class Endpoint : uint8_t { kGenerate, kChat };

inline constexpr std::string_view kNdjson = "application/x-ndjson";

// Encodes replies of both endpoints. NDJSON has no comments: a delta without text keeps a silent stream open.
class ChatEncoder : public ReplyEncoder {
 public:
  ChatEncoder(Endpoint endpoint, std::string model, bool stream, bool return_progress = false)
      : ReplyEncoder(stream, kNdjson, {}),
        endpoint_(endpoint),
        model_(std::move(model)),
        return_progress_(stream && return_progress) {}

 private:
  std::string OnReady(const PromptReady& ready, const EventContext& context) override;
  std::string OnProgress(const PrefillProgress& progress, const EventContext& context) override;
  std::string OnDelta(const TextDelta& delta, const EventContext& context) override;
  std::string OnFinished(const Finished& finished, const EventContext& context) override;
  std::string OnFailed(const Error& error) override;

  Endpoint endpoint_;
  std::string model_;
  bool return_progress_;
  AnswerClock clock_;
  TextDelta answer_;  // all of it so far; stays empty when streaming
  size_t calls_sent_ = 0;
};

// The one object that answers a request without a prompt; done_reason is "unload" or "load".
std::string LoadReply(Endpoint endpoint, std::string_view model, bool unload, const EventContext& context);

std::string ErrorBody(const Error& error);    // {"error":"text"}
std::string StreamError(const Error& error);  // the same as an NDJSON line

}  // namespace quire::api::ollama
