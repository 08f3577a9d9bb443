// Frames around MessagePack values, shared by both directions of the runner link.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "api/ipc/messages.h"
#include "api/json/fields.h"
#include "api/json/type.h"

namespace quire::api::ipc {

// A frame whose payload is appended in between. EndFrame: false, and nothing is left of it, where the payload
// is longer than a frame may be; `begin` is where it began in `frames`.
void StartFrame(uint16_t type, std::string& frames);
bool EndFrame(size_t begin, std::string& frames);

// Header and payload; empty when the payload is larger than kFrameBytesMax.
std::string MakeFrame(uint16_t type, const Json& payload);

Result<Json> ReadPayload(const FrameReader::Frame& frame);

// Reads one payload: every member must be there.
Fields PayloadFields(const Json& payload, FirstError& error, std::string path = "payload");

RequestId GetRequestId(Fields& fields);
// Token ids travel as little-endian int32 bytes.
Json PackTokens(std::span<const TokenId> tokens);
std::vector<TokenId> GetTokens(Fields& fields, std::string_view name);
// As tokens, bit for bit.
Json PackFloats(const std::vector<float>& values);
std::vector<float> GetFloats(Fields& fields, std::string_view name);
// The member "tool_calls", which may be absent.
Json PackToolCalls(const std::vector<ToolCall>& calls);
std::vector<ToolCall> UnpackToolCalls(Fields& fields);
// Bytes that need not be UTF-8.
Json PackBytes(std::string_view bytes);
std::string GetBytes(Fields& fields, std::string_view name);

}  // namespace quire::api::ipc
