#include "api/base/text_bounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <variant>
#include <vector>

namespace quire::api {
namespace {

constexpr size_t kBytesPerToken = 64;  // more than any text has on average that is not made of long runs
constexpr size_t kRefusedBytesMin = size_t{1} << 20;
constexpr size_t kTruncatedBytesMin = size_t{16} << 20;
constexpr size_t kTruncatedTokensMin = size_t{4} << 20;
constexpr size_t kCountedContexts = 4;

size_t BytesOf(const std::vector<Message>& messages) {
  size_t bytes = 0;
  for (const Message& message : messages) {
    bytes += sizeof(Message) + message.role.size() + message.content.size() + message.thinking.size() +
             message.tool_name.size() + message.tool_call_id.size();
    for (const ToolCall& call : message.tool_calls) {
      bytes += sizeof(ToolCall) + call.id.size() + call.name.size() + call.arguments_json.size();
    }
  }
  return bytes;
}

struct PromptBytes {
  size_t operator()(const ChatPrompt& chat) const {
    size_t bytes = BytesOf(chat.messages) + chat.template_arguments_json.size();
    // A tool's name and schema are parts of its definition.
    for (const Tool& tool : chat.tools) bytes += tool.definition_json.size();
    return bytes;
  }
  size_t operator()(const RawPrompt& raw) const { return raw.text.size(); }
  size_t operator()(const ContinuedPrompt& continued) const {
    return BytesOf(continued.messages) + continued.context.size() * sizeof(TokenId);
  }
  size_t operator()(const EmbedPrompt& embed) const {
    return embed.text.size() + embed.tokens.size() * sizeof(TokenId) + embed.document.size() +
           embed.instruction.size() + embed.prompt_name.size();
  }
  size_t operator()(const TokenPrompt& prompt) const { return prompt.tokens.size() * sizeof(TokenId); }
  size_t operator()(const FimPrompt& fim) const {
    size_t bytes = fim.prefix.size() + fim.suffix.size();
    for (const FimFile& file : fim.files) bytes += sizeof(FimFile) + file.name.size() + file.text.size();
    return bytes;
  }
  size_t operator()(const MixedPrompt& mixed) const {
    size_t bytes = 0;
    for (const MixedPrompt::Piece& piece : mixed.pieces) {
      bytes += sizeof(MixedPrompt::Piece) + piece.text.size() + piece.tokens.size() * sizeof(TokenId);
    }
    return bytes;
  }
};

}  // namespace

TextBounds TextBoundsFor(int32_t num_ctx, Overflow overflow) {
  const auto context = static_cast<size_t>(std::max(num_ctx, 1));
  if (overflow != Overflow::kRefuse) {
    return {.bytes = std::max(kTruncatedBytesMin, context * kBytesPerToken),
            .tokens = std::max(kTruncatedTokensMin, context)};
  }
  return {.bytes = std::max(kRefusedBytesMin, context * kBytesPerToken),
          .tokens = context * kCountedContexts};
}

size_t ImagesOf(const Prompt& prompt) {
  const std::vector<Message>* messages = nullptr;
  if (const auto* chat = std::get_if<ChatPrompt>(&prompt)) messages = &chat->messages;
  if (const auto* continued = std::get_if<ContinuedPrompt>(&prompt)) messages = &continued->messages;
  size_t images = 0;
  if (messages == nullptr) return images;
  for (const Message& message : *messages) images += message.images.size();
  return images;
}

size_t TextBytes(const Prompt& prompt) { return std::visit(PromptBytes(), prompt); }

Error ExceedsBounds(const TextBounds& bounds, int32_t num_ctx) {
  return {.code = ErrorCode::kContextLengthExceeded,
          .message = fmt::format(
              "request (more than {} tokens or {} bytes) exceeds the available context size ({} tokens)",
              bounds.tokens, bounds.bytes, num_ctx),
          .tokens = static_cast<int64_t>(std::max(bounds.tokens, static_cast<size_t>(num_ctx) + 1)),
          .tokens_max = num_ctx};
}

Error WithContextOptions(Error error, int32_t num_ctx, int32_t trained, int32_t held) {
  if (error.code != ErrorCode::kContextLengthExceeded || num_ctx >= trained) return error;
  if (held > 0 && num_ctx >= held) {
    error.message += fmt::format(
        "; the model was trained for {}, but its caches hold no more: raise --memory (QUIRE_MEMORY) or "
        "--cache-bytes (QUIRE_CACHE_BYTES)",
        trained);
    return error;
  }
  error.message += fmt::format(
      "; the model was trained for {}: raise options.num_ctx, the model's PARAMETER num_ctx or "
      "OLLAMA_CONTEXT_LENGTH",
      trained);
  return error;
}

}  // namespace quire::api
