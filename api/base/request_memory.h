// About how much memory a request takes once it is parsed: its texts, and the objects that hold them. Of many
// short messages the objects are most of it, 15 times the body that they came in.
//
// Both ends of a runner's link estimate a request alike: what counts is its content, not what the allocator
// gave.
#pragma once

#include <cstddef>
#include <variant>
#include <vector>

#include "api/base/request.h"

namespace quire::api {

// What the heap holds of them beside the object itself.
size_t HeapBytes(const std::vector<Message>& messages);
size_t HeapBytes(const std::vector<Tool>& tools);
size_t HeapBytes(const std::vector<EmbedPrompt>& texts);
size_t HeapBytes(const ChatPrompt& prompt);
size_t HeapBytes(const RawPrompt& prompt);
size_t HeapBytes(const ContinuedPrompt& prompt);
size_t HeapBytes(const EmbedPrompt& prompt);
size_t HeapBytes(const TokenPrompt& prompt);
size_t HeapBytes(const FimPrompt& prompt);
size_t HeapBytes(const MixedPrompt& prompt);
template <class... Prompts>
size_t HeapBytes(const std::variant<Prompts...>& prompt) {
  return std::visit([](const auto& alternative) { return HeapBytes(alternative); }, prompt);
}

// Bytes of the images' files, which TextBytes() leaves out: an image's sides decide what it takes of the
// context.
size_t ImageBytes(const Prompt& prompt);

// All of it.
size_t MemoryBytes(const Request& request);

}  // namespace quire::api
