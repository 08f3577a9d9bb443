// The Anthropic dialect: request bodies of /v1/messages and /v1/messages/count_tokens to a struct, events to
// reply bodies and server-sent events.
//
// A parser takes the whole body as it came. Unknown fields are ignored; unknown kinds of content blocks are
// refused in the user's turn and a line in the history; what is known but not done in this version is refused
// with kUnsupported. Errors name the field by its path.
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
#include "api/json/tool_fields.h"

namespace quire::api::anthropic {

struct MessagesRequest {
  std::string model;  // as sent; replies echo it. Not empty
  // Not empty. `system` is the first of them; results of tools are messages of their own.
  std::vector<Message> messages;
  ImageUse image_use;  // of the messages
  bool stream = false;
  Options options;  // temperature and top_p keep 1 where absent; see ToRequest()
  std::optional<std::chrono::nanoseconds> keep_alive;  // < 0 = never expires
  std::string cache_salt;
  ToolUse tools;
  int32_t thinking_tokens_max = -1;
  Think think = Think::kOff;  // as Anthropic has it where nothing is said
  std::optional<OutputFormat> format;
  std::vector<std::string> unknown_options;  // for the log: offered tools that this server does not run
};

Result<MessagesRequest> ParseMessages(std::string_view body);
// The same without max_tokens and what follows the prompt.
Result<MessagesRequest> ParseCountTokens(std::string_view body);

// Defaults: temperature 1 and top_p 1, then the model's parameters, then the request's. Never cuts the
// prompt.
Request ToRequest(MessagesRequest request, const ModelDefaults& defaults);

struct ReplyHead {
  std::string id;  // "msg_..."; unique, made by the caller
  std::string model;
  bool stream = false;
};

inline constexpr std::string_view kPing = "event: ping\ndata: {\"type\":\"ping\"}\n\n";

// Streamed as server-sent events, the first at PromptReady.
class MessagesEncoder : public ReplyEncoder {
 public:
  explicit MessagesEncoder(ReplyHead head)
      : ReplyEncoder(head.stream, kEventStream, kPing), head_(std::move(head)) {}

 private:
  enum class Block : uint8_t { kNone, kThinking, kText };

  std::string OnReady(const PromptReady& ready, const EventContext& context) override;
  std::string OnDelta(const TextDelta& delta, const EventContext& context) override;
  std::string OnFinished(const Finished& finished, const EventContext& context) override;
  std::string OnFailed(const Error& error) override;
  std::string Piece(Block kind, const std::string& text);
  std::string CallBlock(const ToolCall& call);
  std::string CloseBlock();

  ReplyHead head_;
  Block open_ = Block::kNone;
  int32_t index_ = 0;  // of the block that is open, or comes next
  bool called_ = false;
  TextDelta answer_;  // all of it so far; stays empty when streaming
};

// {"input_tokens"}
class TokenCountEncoder : public ReplyEncoder {
 private:
  std::string OnDelta(const TextDelta& delta, const EventContext& context) override;
  std::string OnFinished(const Finished& finished, const EventContext& context) override;
};

struct ModelEntry {
  std::string id;  // shortest full form
  std::chrono::system_clock::time_point created;
  int32_t context_length = 0;  // of requests, tokens; 0 = not known
  bool thinks = false;
  bool sees_images = false;
};

// /v1/models in this dialect, whose clients send anthropic-version.
std::string EncodeModels(const std::vector<ModelEntry>& models);

// {"type":"error","error":{"type","message"},"request_id"}; an empty id is left out.
std::string ErrorBody(const Error& error, std::string_view request_id = {});

}  // namespace quire::api::anthropic
