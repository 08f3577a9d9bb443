#include "server/fleet/spop.h"

#include <algorithm>
#include <utility>

namespace quire::server::spop {
namespace {

constexpr uint32_t kFin = 1;
constexpr uint8_t kTypeMask = 0x0f;
constexpr uint8_t kTrueFlag = 0x10;
constexpr uint8_t kActionSetVariable = 1;
constexpr uint8_t kSetVariableArguments = 3;
constexpr uint8_t kScopeTransaction = 2;

enum class DataType : uint8_t {
  kNull,
  kBool,
  kInt32,
  kUint32,
  kInt64,
  kUint64,
  kIpv4,
  kIpv6,
  kText,
  kBinary
};

// Reads a payload from its front; after a failure everything fails.
class PayloadReader {
 public:
  explicit PayloadReader(std::string_view bytes) : left_(bytes) {}

  bool ok() const { return ok_; }
  bool done() const { return left_.empty(); }
  std::string_view left() const { return left_; }

  uint8_t Byte() {
    const std::string_view byte = Bytes(1);
    return byte.empty() ? 0 : static_cast<uint8_t>(byte[0]);
  }

  // Four bits of the number in a first byte above 239, then seven per byte.
  uint64_t Number() {
    uint64_t value = Byte();
    if (value < 240) return value;
    for (unsigned shift = 4; shift < 64; shift += 7) {
      const uint64_t byte = Byte();
      if (!ok_) return 0;
      value += byte << shift;
      if (byte < 128) return value;
    }
    ok_ = false;
    return 0;
  }

  std::string_view Text() { return Bytes(Number()); }

  std::string_view Bytes(uint64_t count) {
    if (!ok_ || count > left_.size()) {
      ok_ = false;
      return {};
    }
    const std::string_view bytes = left_.substr(0, count);
    left_.remove_prefix(count);
    return bytes;
  }

 private:
  std::string_view left_;
  bool ok_ = true;
};

struct TypedValue {
  std::string_view text = {};
  uint64_t number = 0;  // of whole types and booleans
};

TypedValue ReadValue(PayloadReader& reader) {
  const uint8_t type = reader.Byte();
  switch (static_cast<DataType>(type & kTypeMask)) {
    case DataType::kBool:
      return {.number = (type & kTrueFlag) != 0 ? 1U : 0U};
    case DataType::kInt32:
    case DataType::kUint32:
    case DataType::kInt64:
    case DataType::kUint64:
      return {.number = reader.Number()};
    case DataType::kIpv4:
      reader.Bytes(4);
      return {};
    case DataType::kIpv6:
      reader.Bytes(16);
      return {};
    case DataType::kText:
    case DataType::kBinary:
      return {.text = reader.Text()};
    case DataType::kNull:
      break;
  }
  if ((type & kTypeMask) != 0) reader.Bytes(UINT64_MAX);  // an unknown type has no known length
  return {};
}

void AppendNumber(std::string& out, uint64_t value) {
  if (value < 240) {
    out += static_cast<char>(value);
    return;
  }
  out += static_cast<char>(static_cast<uint8_t>(value | 240));
  value = (value - 240) >> 4;
  while (value >= 128) {
    out += static_cast<char>(static_cast<uint8_t>(value | 128));
    value = (value - 128) >> 7;
  }
  out += static_cast<char>(value);
}

void AppendText(std::string& out, std::string_view text) {
  AppendNumber(out, text.size());
  out += text;
}

void AppendTyped(std::string& out, std::string_view name, std::string_view text) {
  AppendText(out, name);
  out += static_cast<char>(DataType::kText);
  AppendText(out, text);
}

void AppendTyped(std::string& out, std::string_view name, uint64_t number) {
  AppendText(out, name);
  out += static_cast<char>(DataType::kUint32);
  AppendNumber(out, number);
}

void AppendBigEndian(std::string& out, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>((value >> shift) & 0xff);
}

std::string EncodeFrame(FrameType type, uint64_t stream_id, uint64_t frame_id, std::string_view payload) {
  std::string frame;
  frame += static_cast<char>(type);
  AppendBigEndian(frame, kFin);
  AppendNumber(frame, stream_id);
  AppendNumber(frame, frame_id);
  frame += payload;
  std::string out;
  AppendBigEndian(out, static_cast<uint32_t>(frame.size()));
  return out + frame;
}

std::unexpected<api::Error> Malformed(const char* what) {
  return api::Fail(api::ErrorCode::kInvalidArgument, what);
}

// "2.0", or a list such as "1.0, 2.0".
bool SpeaksVersion2(std::string_view versions) {
  while (!versions.empty()) {
    versions.remove_prefix(std::min(versions.find_first_not_of(", "), versions.size()));
    if (versions.starts_with("2.")) return true;
    versions.remove_prefix(std::min(versions.find(','), versions.size()));
  }
  return false;
}

}  // namespace

uint32_t ParseLength(std::string_view bytes) {
  uint32_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) length = (length << 8) | static_cast<uint8_t>(bytes[i]);
  return length;
}

api::Result<Frame> ParseFrame(std::string_view bytes) {
  PayloadReader reader(bytes);
  Frame frame{.type = static_cast<FrameType>(reader.Byte())};
  const std::string_view flags = reader.Bytes(4);
  if (!reader.ok()) return Malformed("a frame without flags");
  if (ParseLength(flags) != kFin) return Malformed("a fragment of a frame");
  frame.stream_id = reader.Number();
  frame.frame_id = reader.Number();
  if (!reader.ok()) return Malformed("a frame without ids");
  frame.payload = reader.left();
  return frame;
}

api::Result<Hello> ParseHello(std::string_view payload) {
  PayloadReader reader(payload);
  Hello hello;
  bool known_version = false;
  while (!reader.done() && reader.ok()) {
    const std::string_view name = reader.Text();
    const TypedValue value = ReadValue(reader);
    if (name == "supported-versions") known_version = SpeaksVersion2(value.text);
    if (name == "max-frame-size") hello.frame_bytes_max = value.number;
    if (name == "healthcheck") hello.health_check = value.number != 0;
  }
  if (!reader.ok()) return Malformed("a hello that ends too early");
  if (!known_version) return api::Fail(api::ErrorCode::kUnsupported, "no version of the protocol in common");
  return hello;
}

api::Result<std::map<std::string, std::string>> ParseNotify(std::string_view payload) {
  PayloadReader reader(payload);
  std::map<std::string, std::string> arguments;
  while (!reader.done() && reader.ok()) {
    reader.Text();  // the message's name
    for (uint8_t left = reader.Byte(); left > 0 && reader.ok(); --left) {
      std::string name(reader.Text());
      arguments.insert_or_assign(std::move(name), std::string(ReadValue(reader).text));
    }
  }
  if (!reader.ok()) return Malformed("a message that ends too early");
  return arguments;
}

std::string EncodeHello(uint64_t frame_bytes_max) {
  std::string payload;
  AppendTyped(payload, "version", "2.0");
  AppendTyped(payload, "max-frame-size", frame_bytes_max);
  AppendTyped(payload, "capabilities", "pipelining");
  return EncodeFrame(FrameType::kAgentHello, 0, 0, payload);
}

std::string EncodeAck(const Frame& notify, std::string_view variable, std::string_view value) {
  std::string payload;
  if (!variable.empty()) {
    payload += static_cast<char>(kActionSetVariable);
    payload += static_cast<char>(kSetVariableArguments);
    payload += static_cast<char>(kScopeTransaction);
    AppendTyped(payload, variable, value);
  }
  return EncodeFrame(FrameType::kAck, notify.stream_id, notify.frame_id, payload);
}

std::string EncodeDisconnect(uint32_t status, std::string_view message) {
  std::string payload;
  AppendTyped(payload, "status-code", status);
  AppendTyped(payload, "message", message);
  return EncodeFrame(FrameType::kAgentDisconnect, 0, 0, payload);
}

}  // namespace quire::server::spop
