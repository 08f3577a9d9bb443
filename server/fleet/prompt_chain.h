// A request's prompt as hashes of its beginnings, one per message: what two prompts have in common without a tokenizer.
//
// All dialects are read alike: what stands before the messages ("system", "tools", ...), then "messages" or the items of
// "input", else the text of "prompt" in pieces of kPieceBytes. Members that say nothing to a model ("cache_control")
// count for nothing. Two clients with different keys have different hashes for the same prompt, as daemons keep their
// prefixes apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire::server {

struct PromptChain {
  static constexpr size_t kPieceBytes = 512;
  static constexpr size_t kPieceTokens = 64;  // of "context"

  struct End {
    uint64_t hash = 0;  // of everything before
    size_t bytes = 0;   // of the prompt up to here
  };

  std::string model;          // as stores display it; empty: the request names none
  uint64_t conversation = 0;  // of what all turns of a conversation begin with: its first message by a user
  std::vector<End> ends = {};
  size_t bytes = 0;  // of the whole prompt; an integer counts as one
};

// `credential`: what the client presents, or nothing. No value: the body is not JSON with a prompt.
std::optional<PromptChain> ReadPromptChain(std::string_view body, std::string_view credential);

}  // namespace quire::server
