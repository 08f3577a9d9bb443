// Bounds on what a request may hold. The HTTP server's body limit must not be above kBodyBytesMax.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire::api {

inline constexpr size_t kBodyBytesMax = size_t{64}
                                        << 20;   // a request that fits, fits one frame of the runner link
inline constexpr size_t kMessagesMax = 250'000;  // messages and tool calls of one chat
inline constexpr size_t kToolBytesMax = size_t{8} << 20;  // JSON of all tools together
inline constexpr size_t kToolsMax = size_t{64}
                                    << 10;  // of one request, and names of those that may be called
inline constexpr size_t kFormatBytesMax = size_t{1} << 20;  // source of an answer's format
inline constexpr size_t kEmbedInputsMax = 2048;             // texts of one embedding request
inline constexpr size_t kResponseFieldsMax = 256;  // members of a reply that a request may ask for by name
inline constexpr size_t kStopStringsMax = 1024;
inline constexpr size_t kStopBytesMax = size_t{8} << 10;  // all stop strings together
inline constexpr int32_t kTopLogprobsMax = 20;            // of OpenAI's routes
inline constexpr int32_t kTopCandidatesMax = 1000;        // alternatives per token that a runner reports
inline constexpr size_t kLogitBiasesMax = 1024;
inline constexpr size_t kStopTokensMax = 1024;
inline constexpr int32_t kChoicesMax = 128;  // of one request: prompts times choices of each
inline constexpr size_t kCacheSaltBytesMax = 1024;

}  // namespace quire::api
