// Cohere's /v2/chat: request bodies to the struct of OpenAI's chats, events to reply bodies and server-sent
// events.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "api/base/error.h"
#include "api/base/event.h"
#include "api/base/reply_encoder.h"
#include "api/json/type.h"
#include "api/openai/chat.h"
#include "api/openai/choices.h"

namespace quire::api::openai {

// Errors name the field by its path. "documents" become a variable of the template. "citation_options",
// "safety_mode" and "priority" change nothing.
Result<ChatRequest> ParseCohereChat(std::string_view body);

// Cohere's: temperature 0.3, top_p 0.75, top_k off.
Options CohereOptions();

// One choice. The text and the thinking of an answer are parts of its content; text beside calls is
// "tool_plan", too.
class CohereChatEncoder : public ReplyEncoder {
 public:
  // `id` is unique, made by the caller.
  CohereChatEncoder(std::string id, bool stream)
      : ReplyEncoder(stream, kEventStream, kWaiting), id_(std::move(id)) {}

 private:
  std::string OnReady(const PromptReady& ready, const EventContext& context) override;
  std::string OnDelta(const TextDelta& delta, const EventContext& context) override;
  std::string OnFinished(const Finished& finished, const EventContext& context) override;
  std::string OnFailed(const Error& error) override;
  std::string Piece(std::string_view type, const std::string& text,
                    const std::vector<TokenLogprob>& logprobs);
  std::string CallEvents(const ToolCall& call);
  std::string CloseBlock();
  std::string EncodeBody(const Finished& finished) const;

  std::string id_;
  std::string_view open_ = {};  // the type of the content block that is open, or empty
  int32_t block_ = 0;           // its index, or the next one's
  int32_t calls_ = 0;           // so far
  TextDelta answer_;            // all of it so far; stays empty when streaming
};

}  // namespace quire::api::openai
