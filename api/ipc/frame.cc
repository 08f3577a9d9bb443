#include <fmt/format.h>

#include <bit>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/ipc/messages.h"
#include "api/ipc/payload.h"
#include "api/json/read.h"

namespace quire::api::ipc {
namespace {

constexpr std::string_view kMagic = "QIPC";
constexpr size_t kVersionAt = 4;
constexpr size_t kTypeAt = 6;
constexpr size_t kLengthAt = 8;
constexpr size_t kReservedAt = 12;
constexpr size_t kBufferKept = size_t{1}
                               << 20;  // an empty buffer larger than this goes back to the allocator

template <class Unsigned>
void PutLittleEndian(std::string& out, Unsigned value) {
  for (size_t i = 0; i < sizeof(Unsigned); ++i) out += static_cast<char>((uint64_t{value} >> (8 * i)) & 0xFF);
}

template <class Unsigned>
Unsigned GetLittleEndian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(Unsigned); ++i)
    value |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  return static_cast<Unsigned>(value);
}

std::unexpected<Error> BadFrame(std::string reason) {
  return Fail(ErrorCode::kInvalidArgument, "bad frame on the runner link: " + std::move(reason));
}

}  // namespace

void StartFrame(uint16_t type, std::string& frames) {
  frames += kMagic;
  PutLittleEndian(frames, kVersion);
  PutLittleEndian(frames, type);
  PutLittleEndian(frames, uint32_t{0});
  PutLittleEndian(frames, uint32_t{0});
}

bool EndFrame(size_t begin, std::string& frames) {
  const size_t length = frames.size() - begin - kHeaderBytes;
  if (length > kFrameBytesMax) {
    frames.resize(begin);
    return false;
  }
  std::string length_bytes;
  PutLittleEndian(length_bytes, static_cast<uint32_t>(length));
  frames.replace(begin + kLengthAt, length_bytes.size(), length_bytes);
  return true;
}

std::string MakeFrame(uint16_t type, const Json& payload) {
  std::string frame;
  StartFrame(type, frame);
  Json::to_msgpack(payload, nlohmann::detail::output_adapter<char>(frame));
  EndFrame(0, frame);
  return frame;
}

Result<Json> ReadPayload(const FrameReader::Frame& frame) { return ReadMessagePack(frame.payload); }

Fields PayloadFields(const Json& payload, FirstError& error, std::string path) {
  return Fields(payload, std::move(path), error, Noun::kField, Absent::kError);
}

RequestId GetRequestId(Fields& fields) {
  uint64_t id = 0;
  fields.Get("id", id);
  return RequestId{id};
}

Json PackBytes(std::string_view bytes) { return Json::binary({bytes.begin(), bytes.end()}); }

std::string GetBytes(Fields& fields, std::string_view name) {
  const Json* value = fields.Find(name);
  if (value == nullptr) return {};
  if (!value->is_binary()) {
    fields.Reject(name, "must be binary");
    return {};
  }
  const auto& bytes = value->get_binary();
  return {bytes.begin(), bytes.end()};
}

Json PackTokens(std::span<const TokenId> tokens) {
  std::string bytes;
  bytes.reserve(tokens.size() * sizeof(TokenId));
  for (const TokenId token : tokens) PutLittleEndian(bytes, static_cast<uint32_t>(token));
  return PackBytes(bytes);
}

std::vector<TokenId> GetTokens(Fields& fields, std::string_view name) {
  const std::string bytes = GetBytes(fields, name);
  if (bytes.size() % sizeof(TokenId) != 0) {
    fields.Reject(name, "does not contain whole tokens");
    return {};
  }
  std::vector<TokenId> tokens(bytes.size() / sizeof(TokenId));
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<TokenId>(
        GetLittleEndian<uint32_t>(std::string_view(bytes).substr(i * sizeof(TokenId), sizeof(TokenId))));
  }
  return tokens;
}

Json PackFloats(const std::vector<float>& values) {
  std::string bytes;
  bytes.reserve(values.size() * sizeof(float));
  for (const float value : values) PutLittleEndian(bytes, std::bit_cast<uint32_t>(value));
  return PackBytes(bytes);
}

std::vector<float> GetFloats(Fields& fields, std::string_view name) {
  std::vector<float> values;
  for (const TokenId bits : GetTokens(fields, name)) values.push_back(std::bit_cast<float>(bits));
  return values;
}

void FrameReader::Append(std::string_view bytes) {
  if (begin_ == buffer_.size()) {
    if (buffer_.capacity() > kBufferKept) {
      buffer_ = std::string();
    } else {
      buffer_.clear();
    }
    begin_ = 0;
  } else if (begin_ > buffer_.size() / 2) {
    // A move is shorter than the bytes consumed since the last one, so the total work stays linear.
    buffer_.erase(0, begin_);
    begin_ = 0;
  }
  buffer_.append(bytes);
}

Result<std::optional<FrameReader::Frame>> FrameReader::Next() {
  const std::string_view rest = std::string_view(buffer_).substr(begin_);
  if (rest.size() < kHeaderBytes) return std::nullopt;
  if (!rest.starts_with(kMagic)) return BadFrame("missing magic number");
  const auto version = GetLittleEndian<uint16_t>(rest.substr(kVersionAt));
  if (version != kVersion) return BadFrame(fmt::format("version {}, not {}", version, kVersion));
  if (GetLittleEndian<uint32_t>(rest.substr(kReservedAt)) != 0) return BadFrame("reserved bits are set");
  const size_t length = GetLittleEndian<uint32_t>(rest.substr(kLengthAt));
  if (length > kFrameBytesMax) return BadFrame(fmt::format("length {} is over {}", length, kFrameBytesMax));
  if (rest.size() - kHeaderBytes < length) return std::nullopt;
  Frame frame{GetLittleEndian<uint16_t>(rest.substr(kTypeAt)),
              std::string(rest.substr(kHeaderBytes, length))};
  begin_ += kHeaderBytes + length;
  return frame;
}

Json PackToolCalls(const std::vector<ToolCall>& calls) {
  Json packed = Json::array();
  for (const ToolCall& call : calls) {
    Json entry = {{"id", call.id}, {"name", call.name}, {"arguments", call.arguments_json}};
    packed.push_back(std::move(entry));
  }
  return packed;
}

std::vector<ToolCall> UnpackToolCalls(Fields& fields) {
  std::vector<ToolCall> calls;
  const Json* list = fields.FindArray("tool_calls");
  if (list == nullptr) return calls;
  for (const Json& value : *list) {
    Fields call = PayloadFields(value, fields.error(), fields.PathOf("tool_calls[]"));
    ToolCall& out = calls.emplace_back();
    call.Get("id", out.id);
    call.Get("name", out.name);
    call.Get("arguments", out.arguments_json);
    if (!fields.ok()) break;
  }
  return calls;
}

}  // namespace quire::api::ipc
