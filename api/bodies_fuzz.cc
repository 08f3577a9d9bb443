// Request bodies of every dialect. An accepted body must pass the runner link unchanged, and a
// rejection must be a client error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "api/anthropic/messages.h"
#include "api/base/duration.h"
#include "api/base/image_use.h"
#include "api/base/model_name.h"
#include "api/ipc/messages.h"
#include "api/json/option_fields.h"
#include "api/json/read.h"
#include "api/llama_server/completion.h"
#include "api/llama_server/slots.h"
#include "api/llama_server/tokenize.h"
#include "api/ollama/chat.h"
#include "api/ollama/lists.h"
#include "api/openai/chat.h"
#include "api/openai/cohere_chat.h"
#include "api/openai/completions.h"
#include "api/openai/responses.h"

namespace {

using namespace quire::api;

void Require(bool condition) {
  if (!condition) std::abort();
}

void RequireClientError(const Error& error) {
  const int status = HttpStatus(error.code);
  Require(status == 400 || status == 413);
  Require(!error.message.empty());
}

void CheckPassesTheLink(Request request) {
  const ipc::ToRunner message = ipc::Submit{RequestId{1}, std::move(request)};
  const std::string bytes = ipc::Encode(message);
  ipc::FrameReader reader(ipc::Receiver::kRunner);
  reader.Append(bytes);
  const auto frame = reader.Next();
  Require(frame && *frame);
  const auto decoded = ipc::DecodeToRunner(**frame);
  Require(decoded.has_value());
  Require(ipc::Encode(*decoded) == bytes);
}

// For a model that sees and for one that does not. Images stand in their texts, in order.
void CheckImages(const ImageUse& use, std::vector<Message> messages, bool sees) {
  if (const auto settled = SettleImages(use, sees, messages); !settled)
    return RequireClientError(settled.error());
  for (const Message& message : messages) {
    size_t from = 0;
    for (const Image& image : message.images) {
      Require(sees && image.file != nullptr && image.at >= from && image.at <= message.content.size());
      from = image.at;
    }
  }
}

template <class Parsed>
void CheckRequest(Result<Parsed> parsed) {
  if (!parsed) return RequireClientError(parsed.error());
  Require(!parsed->model.empty());
  std::vector<Message> none;
  std::vector<Message>* messages = &none;
  if constexpr (requires { parsed->messages; }) messages = &parsed->messages;
  CheckImages(parsed->image_use, *messages, false);
  CheckImages(parsed->image_use, *messages, true);
  if (!SettleImages(parsed->image_use, true, *messages)) return;
  CheckPassesTheLink(ToRequest(*std::move(parsed), {}));
}

template <class Parsed>
void CheckCompletion(Result<Parsed> parsed) {
  if (!parsed) return RequireClientError(parsed.error());
  for (Request& request : ToRequests(*std::move(parsed), {})) CheckPassesTheLink(std::move(request));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto json = ReadJson(text)) {
    const std::string dumped = DumpJson(*json);
    const auto again = ReadJson(dumped);
    Require(again && DumpJson(*again) == dumped);
  }
  CheckRequest(ollama::ParseGenerate(text));
  CheckRequest(ollama::ParseChat(text));
  CheckRequest(openai::ParseChat(text));
  CheckRequest(openai::ParseCohereChat(text));
  CheckCompletion(openai::ParseCompletion(text));
  CheckRequest(openai::ParseResponses(text));
  CheckCompletion(llama_server::ParseCompletion(text));
  CheckCompletion(llama_server::ParseInfill(text));
  if (const auto slot = llama_server::ParseSlotAction("0", "action=save", text); !slot) {
    RequireClientError(slot.error());
  }
  if (auto parsed = ParseTokenize(text)) {
    auto* chat = parsed->chat ? &parsed->chat->chat : nullptr;
    if (chat == nullptr || SettleImages(chat->image_use, true, chat->messages))
      CheckPassesTheLink(ToRequest(*std::move(parsed), {}));
  }
  if (auto parsed = ParseDetokenize(text)) CheckPassesTheLink(ToRequest(*std::move(parsed)));
  CheckRequest(anthropic::ParseMessages(text));
  CheckRequest(anthropic::ParseCountTokens(text));
  if (const auto show = ollama::ParseShow(text)) {
    ollama::ShowReply reply;
    reply.overrides_json = show->options_json;
    reply.model_info_json = std::string(text);
    reply.tensors_json = std::string(text);
    Require(ReadJson(ollama::EncodeShow(reply)).has_value());
  }
  if (const auto options = ParseOptions(text); !options) RequireClientError(options.error());
  if (const auto name = ParseModelName(text)) {
    const auto again = ParseModelName(name->Display());
    Require(again && again->Matches(*name));
  }
  ParseGoDuration(text);
  return 0;
}
