#include "api/base/request_memory.h"

#include <string>
#include <variant>
#include <vector>

namespace quire::api {
namespace {

constexpr size_t kBlockBytes = 16;  // of the allocator, for each block

size_t HeapBytes(const std::string& text) {
  constexpr size_t kInPlace = 15;  // bytes that need no block
  return text.size() <= kInPlace ? 0 : text.size() + 1 + kBlockBytes;
}

template <class Number>
size_t NumbersBytes(const std::vector<Number>& numbers) {
  return numbers.empty() ? 0 : numbers.size() * sizeof(Number) + kBlockBytes;
}

size_t HeapBytes(const ToolCall& call) {
  return HeapBytes(call.id) + HeapBytes(call.name) + HeapBytes(call.arguments_json);
}

size_t HeapBytes(const Image& image) {
  if (image.file == nullptr) return 0;  // of a request that is still being read
  return HeapBytes(*image.file) + sizeof(std::string) + kBlockBytes;
}

size_t HeapBytes(const FimFile& file) { return HeapBytes(file.name) + HeapBytes(file.text); }

size_t HeapBytes(const Tool& tool) {
  return HeapBytes(tool.name) + HeapBytes(tool.parameters_json) + HeapBytes(tool.parameters_field) +
         HeapBytes(tool.definition_json);
}

size_t HeapBytes(const MixedPrompt::Piece& piece) {
  return HeapBytes(piece.text) + NumbersBytes(piece.tokens);
}

size_t HeapBytes(const Message& message);

template <class Element>
size_t ListBytes(const std::vector<Element>& list) {
  size_t bytes = NumbersBytes(list);
  for (const Element& element : list) bytes += HeapBytes(element);
  return bytes;
}

size_t HeapBytes(const Message& message) {
  return HeapBytes(message.role) + HeapBytes(message.content) + HeapBytes(message.thinking) +
         ListBytes(message.tool_calls) + HeapBytes(message.tool_name) + HeapBytes(message.tool_call_id) +
         ListBytes(message.images);
}

size_t HeapBytes(const GenerationParams& params) {
  return ListBytes(params.dry_sequence_breakers) + ListBytes(params.stop) + NumbersBytes(params.logit_bias) +
         NumbersBytes(params.stop_token_ids);
}

size_t HeapBytes(const Client& client) {
  return HeapBytes(client.tenant) + HeapBytes(client.cache_salt) + HeapBytes(client.exchange);
}

}  // namespace

size_t HeapBytes(const std::vector<Message>& messages) { return ListBytes(messages); }
size_t HeapBytes(const std::vector<Tool>& tools) { return ListBytes(tools); }
size_t HeapBytes(const std::vector<EmbedPrompt>& texts) { return ListBytes(texts); }

size_t HeapBytes(const ChatPrompt& prompt) {
  return HeapBytes(prompt.messages) + HeapBytes(prompt.tools) + HeapBytes(prompt.template_arguments_json);
}
size_t HeapBytes(const RawPrompt& prompt) { return HeapBytes(prompt.text); }
size_t HeapBytes(const ContinuedPrompt& prompt) {
  return NumbersBytes(prompt.context) + HeapBytes(prompt.messages);
}
size_t HeapBytes(const EmbedPrompt& prompt) {
  return HeapBytes(prompt.text) + NumbersBytes(prompt.tokens) + HeapBytes(prompt.document) +
         HeapBytes(prompt.instruction) + HeapBytes(prompt.prompt_name);
}
size_t HeapBytes(const TokenPrompt& prompt) { return NumbersBytes(prompt.tokens); }
size_t HeapBytes(const FimPrompt& prompt) {
  return HeapBytes(prompt.prefix) + HeapBytes(prompt.suffix) + ListBytes(prompt.files);
}
size_t HeapBytes(const MixedPrompt& prompt) { return ListBytes(prompt.pieces); }

size_t ImageBytes(const Prompt& prompt) {
  const auto of_messages = [](const std::vector<Message>& messages) {
    size_t bytes = 0;
    for (const Message& message : messages) {
      for (const Image& image : message.images) bytes += image.file->size();
    }
    return bytes;
  };
  if (const auto* chat = std::get_if<ChatPrompt>(&prompt)) return of_messages(chat->messages);
  const auto* continued = std::get_if<ContinuedPrompt>(&prompt);
  return continued == nullptr ? 0 : of_messages(continued->messages);
}

size_t MemoryBytes(const Request& request) {
  const size_t format =
      request.format ? HeapBytes(request.format->text) + HeapBytes(request.format->field) : 0;
  return sizeof(Request) + HeapBytes(request.prompt) + HeapBytes(request.client) + HeapBytes(request.params) +
         HeapBytes(request.forced_tool) + format + HeapBytes(request.model_name) +
         HeapBytes(request.go_template);
}

}  // namespace quire::api
