#include <fmt/format.h>

#include <set>
#include <type_traits>
#include <utility>

#include "api/ipc/codec.h"
#include "api/ipc/message_fields.h"
#include "api/ipc/messages.h"
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

// Apart from each other, so that a frame sent the wrong way is refused.
template <class Message>
constexpr uint16_t kFirstType = std::is_same_v<Message, ToRunner> ? 1 : 101;

template <class Message>
void AppendFrameOf(const Message& message, std::string& frames) {
  const size_t begin = frames.size();
  frames += kMagic;
  PutLittleEndian(frames, kVersion);
  PutLittleEndian(frames, static_cast<uint16_t>(kFirstType<Message> + message.index()));
  PutLittleEndian(frames, uint64_t{0});  // length and reserved
  Packer packer(frames);
  std::visit([&packer](const auto& alternative) { packer.Put(alternative); }, message);
  const size_t length = frames.size() - begin - kHeaderBytes;
  if (length > kFrameBytesMax) return frames.resize(begin);
  for (size_t i = 0; i < sizeof(uint32_t); ++i) {
    frames[begin + kLengthAt + i] = static_cast<char>(length >> (8 * i) & 0xFF);
  }
}

// Each name is in a list once, each descriptor in a message once.
class FileCheck {
 public:
  explicit FileCheck(FirstError& error) : error_(error) {}

  void operator()(std::string_view list, const std::vector<ModelFile>& files) {
    std::set<std::string_view> names;
    for (const ModelFile& file : files) {
      if (!names.insert(file.name).second) Reject(list, "name");
      if (!fds_.insert(file.fd).second) Reject(list, "fd");
    }
  }

 private:
  void Reject(std::string_view list, std::string_view name) {
    const std::string path = fmt::format("payload.{}[].{}", list, name);
    if (!error_)
      error_ = Error{ErrorCode::kInvalidArgument, fmt::format("field \"{}\" is duplicated", path), path};
  }

  FirstError& error_;
  std::set<int32_t> fds_;
};

template <class Message>
Result<Message> Decode(const FrameReader::Frame& frame) {
  if (frame.type < kFirstType<Message> ||
      frame.type - kFirstType<Message> >= int{std::variant_size_v<Message>}) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("unknown message type {}", frame.type));
  }
  const auto payload = ReadMessagePack(frame.payload);
  if (!payload) return std::unexpected(payload.error());
  FirstError error;
  Unpacker unpacker(*payload, "payload", error);
  FileCheck check_files(error);
  Message message;
  Unpacker::Choose(message, frame.type - size_t{kFirstType<Message>});
  std::visit(
      [&](auto& alternative) {
        VisitFields(alternative, unpacker);
        if constexpr (requires { alternative.files; }) check_files("files", alternative.files);
        if constexpr (requires { alternative.draft_files; }) {
          check_files("draft_files", alternative.draft_files);
        }
      },
      message);
  if (error) return std::unexpected(std::move(*error));
  return message;
}

}  // namespace

std::string Encode(const ToRunner& message) {
  std::string frame;
  AppendFrameOf(message, frame);
  return frame;
}
std::string Encode(const ToDaemon& message) {
  std::string frame;
  AppendFrameOf(message, frame);
  return frame;
}
void AppendFrame(const ToDaemon& message, std::string& frames) { AppendFrameOf(message, frames); }

Result<ToRunner> DecodeToRunner(const FrameReader::Frame& frame) { return Decode<ToRunner>(frame); }
Result<ToDaemon> DecodeToDaemon(const FrameReader::Frame& frame) { return Decode<ToDaemon>(frame); }

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

}  // namespace quire::api::ipc
