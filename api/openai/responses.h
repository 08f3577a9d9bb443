// OpenAI's /v1/responses, without its state: input items to messages, events to a response object or its
// events.
//
// The parser takes the whole body as it came. Unknown fields are ignored; what is known but not done in this
// version is refused with kUnsupported. Errors name the field by its path.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
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
#include "api/json/type.h"
#include "api/openai/choices.h"
#include "api/openai/responses_tools.h"
#include "api/openai/template_fields.h"

namespace quire::api::openai {

struct ResponsesRequest {
  std::string model;              // as sent; replies echo it. Not empty
  std::string instructions;       // goes before the messages and over the model's system text
  std::vector<Message> messages;  // not empty
  ImageUse image_use;             // of the messages
  bool stream = false;
  Options options;                           // temperature and top_p keep OpenAI's default 1 where absent
  std::vector<std::string> unknown_options;  // for the log
  std::optional<std::chrono::nanoseconds> keep_alive;  // < 0 = never expires
  std::string cache_salt;
  TemplateFields rendering;
  std::optional<OutputFormat> format;
  ToolUse tools;
  std::vector<ResponsesTool> special_tools;  // of `tools`, those that are more than plain functions
  bool truncates = false;                    // the oldest messages of a prompt that is too long are left out
  // JSON as sent, for the reply to repeat; empty: nothing was said.
  std::string text_json;
  std::string tools_json;
  std::string tool_choice_json;
};

Result<ResponsesRequest> ParseResponses(std::string_view body);

// The reply of /v1/responses/input_tokens: {"object","input_tokens"}.
class InputTokensEncoder : public ReplyEncoder {
 private:
  std::string OnDelta(const TextDelta&, const EventContext&) override { return {}; }
  std::string OnFinished(const Finished& finished, const EventContext& context) override;
};

// As the ToRequest() of a chat. Never cuts the prompt.
Request ToRequest(ResponsesRequest request, const ModelDefaults& defaults);

// The fields of a request that its response repeats.
struct ResponseHead {
  std::string id;          // "resp_..."; unique, made by the caller
  std::string message_id;  // "msg_...", as above
  std::string model;
  std::chrono::system_clock::time_point created;
  bool stream = false;
  std::string instructions;
  std::optional<int32_t> max_output_tokens;
  float temperature = 1;
  float top_p = 1;
  bool parallel_tool_calls = true;
  std::string text_json = {};  // these three as in the request
  std::string tools_json = {};
  std::string tool_choice_json = {};
  std::vector<ResponsesTool> special_tools = {};
  bool truncates = false;
  bool hide_thinking = false;
};

// The members of a response that do not change, as JSON text that is spliced in: tools and schemas may have
// megabytes.
class ResponseText {
 public:
  explicit ResponseText(const ResponseHead& head);

  // `output`: JSON text. `usage`: null while the response is in progress. Of `head` the sampling counts.
  std::string Encode(std::string_view status, bool cut, std::string_view output, const Usage* usage,
                     const ResponseHead& head) const;
  size_t bytes() const {
    return begin_.size() + before_output_.size() + after_output_.size() + settings_.size() + end_.size();
  }

 private:
  std::string begin_, before_output_, after_output_, settings_, end_;  // members without braces
};

// Streamed as server-sent events, numbered in their order, the first ones at PromptReady; there is no
// "[DONE]".
class ResponsesEncoder : public ReplyEncoder {
 public:
  explicit ResponsesEncoder(ResponseHead head);
  size_t RepeatedBytes(const Event& event, size_t choice) const override;

 private:
  enum class Status : uint8_t { kInProgress, kCompleted, kIncomplete };
  enum class Kind : uint8_t { kReasoning, kMessage, kCall };
  // The items of the output, in order.
  struct Item {
    Kind kind = Kind::kMessage;
    std::string text;  // so far; of a call none
    ToolCall call;
    size_t number = 0;  // among those of its kind
  };

  std::string OnReady(const PromptReady& ready, const EventContext& context) override;
  std::string OnDelta(const TextDelta& delta, const EventContext& context) override;
  std::string OnFinished(const Finished& finished, const EventContext& context) override;
  std::string OnFailed(const Error& error) override;
  // More of the open item, or of a new one.
  std::string AddPiece(Kind kind, const std::string& text);
  std::string AddCall(const ToolCall& call);
  std::string CallEvent(std::string_view stage);
  std::string OpenItem(Item item);
  std::string CloseItem(Status status);

  std::string Response(Status status, const Json& output, const Usage* usage) const;
  // An event with a response, numbered.
  std::string ResponseEvent(std::string_view type, std::string_view response);
  Json Output(Status last) const;
  Json Encode(size_t index, Status status) const;
  std::string IdOf(size_t index) const;
  // An event of the last item.
  Json ItemEvent(std::string_view type) const;
  Json PartEvent(std::string_view type, std::string_view text) const;
  std::string Numbered(Json event);  // nothing unless streamed

  ResponseText text_;
  ResponseHead head_;  // without what is in text_ only
  int64_t next_number_ = 0;
  std::vector<Item> items_;
  std::map<Kind, size_t> items_of_;  // how many of each kind
  bool open_ = false;                // the last of them
};

}  // namespace quire::api::openai
