// The runner link from both sides: the bytes as a stream, and as the payload of each message type. What
// decodes must encode to the same message again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "api/anthropic/messages.h"
#include "api/ipc/messages.h"
#include "api/llama_server/tokenize.h"
#include "api/ollama/chat.h"
#include "api/openai/chat.h"
#include "api/openai/completions.h"
#include "api/openai/responses.h"

namespace {

using namespace quire::api;

void Require(bool condition) {
  if (!condition) std::abort();
}

ipc::FrameReader::Frame OneFrame(const std::string& bytes, ipc::Receiver receiver) {
  ipc::FrameReader reader(receiver);
  reader.Append(bytes);
  auto frame = reader.Next();
  Require(frame && *frame);
  return **std::move(frame);
}

void CheckFrame(const ipc::FrameReader::Frame& frame) {
  if (const auto message = ipc::DecodeToRunner(frame)) {
    const std::string bytes = ipc::Encode(*message);
    const auto again = ipc::DecodeToRunner(OneFrame(bytes, ipc::Receiver::kRunner));
    Require(again && ipc::Encode(*again) == bytes);
  }
  if (const auto message = ipc::DecodeToDaemon(frame)) {
    const std::string bytes = ipc::Encode(*message);
    const auto again = ipc::DecodeToDaemon(OneFrame(bytes, ipc::Receiver::kDaemon));
    Require(again && ipc::Encode(*again) == bytes);
    if (const auto* event = std::get_if<ipc::RequestEvent>(&*message)) {
      // A runner that was taken over must not be able to bring down the encoders either.
      ollama::ChatEncoder(ollama::Endpoint::kChat, "m", true).OnEvent(event->event);
      anthropic::MessagesEncoder({"id", "m", true}).OnEvent(event->event);
      openai::ResponsesEncoder({.id = "r", .message_id = "m", .model = "m", .created = {}, .stream = true})
          .OnEvent(event->event);
      TokenizeEncoder(TokenizeEncoder::Shape::kPieces).OnEvent(event->event);
      openai::CompletionEncoder({"id", "m", {}, true, true}, {}).OnEvent(event->event);
      openai::ChatEncoder({"id", "m", {}, true, true}).OnEvent(event->event);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::string input(reinterpret_cast<const char*>(data) + 1, size - 1);
  // Inputs of older versions of the protocol stay of use.
  if (input.size() >= ipc::kHeaderBytes && input.starts_with("QIPC")) {
    input[4] = static_cast<char>(ipc::kVersion);
    input[5] = static_cast<char>(ipc::kVersion >> 8U);
  }
  const size_t step = size_t{data[0]} + 1;
  ipc::FrameReader reader(data[0] % 2 == 0 ? ipc::Receiver::kDaemon : ipc::Receiver::kRunner);
  for (size_t at = 0; at < input.size(); at += step) {
    reader.Append(std::string_view(input).substr(at, step));
    while (true) {
      const auto frame = reader.Next();
      if (!frame || !*frame) break;
      CheckFrame(**frame);
    }
  }
  CheckFrame({data[0], input});
  return 0;
}
