#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <type_traits>
#include <utility>

#include "api/base/request_memory.h"
#include "api/base/text_bounds.h"
#include "api/ipc/bounds_check.h"
#include "api/ipc/frame_bounds.h"
#include "api/ipc/message_fields.h"
#include "api/ipc/messages.h"
#include "api/ipc/model_fields.h"
#include "api/ipc/packer.h"
#include "api/json/fields.h"
#include "api/json/read.h"
#include "api/json/text.h"

namespace quire::api::ipc {
namespace {

constexpr std::string_view kMagic = "QIPC";
constexpr size_t kVersionAt = 4;
constexpr size_t kTypeAt = 6;
constexpr size_t kLengthAt = 8;
constexpr size_t kReservedAt = 12;
constexpr size_t kRequestBytes = 4096;  // of the frame of a request beside its texts, usually
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

template <class Message>
constexpr bool kIsToDaemon = std::is_same_v<Message, ToDaemon>;
template <class Message>
constexpr uint16_t kFirstType = kIsToDaemon<Message> ? kFirstTypeToDaemon : kFirstTypeToRunner;

// Appends nothing, and says so, where the payload would be too large.
template <class Alternative>
bool AppendFrameOf(uint16_t type, const Alternative& alternative, std::string& frames) {
  const size_t begin = frames.size();
  frames += kMagic;
  PutLittleEndian(frames, kVersion);
  PutLittleEndian(frames, type);
  PutLittleEndian(frames, uint64_t{0});  // length and reserved
  Packer(frames).Put(alternative);
  const size_t length = frames.size() - begin - kHeaderBytes;
  const Receiver receiver = type >= kFirstTypeToDaemon ? Receiver::kDaemon : Receiver::kRunner;
  if (length > BoundsOf(receiver, type)->bytes) {
    frames.resize(begin);
    return false;
  }
  for (size_t i = 0; i < sizeof(uint32_t); ++i) {
    frames[begin + kLengthAt + i] = static_cast<char>(length >> (8 * i) & 0xFF);
  }
  return true;
}

// In place of an event that the daemon would refuse, with the whole runner: its request fails alone.
std::optional<RequestEvent> FailureOf(const ToDaemon& message) {
  const auto* event = std::get_if<RequestEvent>(&message);
  if (event == nullptr) return std::nullopt;
  BoundsCheck check;
  check.Put(*event);
  if (!check.breach().empty()) {
    return RequestEvent{event->id,
                        Failed{{ErrorCode::kInternal,
                                fmt::format("the model runner computed a value of \"{}\" that is not valid",
                                            check.breach())}}};
  }
  const size_t values_max =
      BoundsOf(Receiver::kDaemon, static_cast<uint16_t>(kFirstTypeToDaemon + message.index()))->values;
  if (check.values() <= values_max) return std::nullopt;
  return RequestEvent{event->id,
                      Failed{{ErrorCode::kTooLarge,
                              fmt::format("one event of the answer has more than {} values", values_max)}}};
}

template <class Message>
void AppendFrameOf(const Message& message, std::string& frames) {
  const auto type = static_cast<uint16_t>(kFirstType<Message> + message.index());
  if constexpr (kIsToDaemon<Message>) {
    if (const auto failed = FailureOf(message)) return AppendFrameOf(ToDaemon(*failed), frames);
  }
  const bool fits =
      std::visit([&](const auto& alternative) { return AppendFrameOf(type, alternative, frames); }, message);
  if constexpr (kIsToDaemon<Message>) {
    const auto instead = fits ? std::nullopt : InsteadOf(message);
    if (instead) AppendFrameOf(*instead, frames);
  }
}

// Reads one map. Every member must be there but those of IfAny(); the first error ends it and names the
// member.
class Unpacker {
 public:
  Unpacker(const Json& value, std::string path, FirstError& error)
      : fields_(value, std::move(path), error, Noun::kField, Absent::kError) {}

  template <class T, class... Bounds>
  void operator()(std::string_view name, T& out, Bounds... bounds) {
    if constexpr (std::same_as<T, RequestId>) {
      uint64_t id = 0;
      fields_.Get(name, id);
      out = RequestId{id};
    } else if constexpr (std::is_enum_v<T>) {
      int32_t number = 0;
      fields_.Get(name, number, 0, static_cast<int32_t>(std::to_underlying(bounds))...);
      out = static_cast<T>(number);
    } else if constexpr (std::same_as<T, float> || std::signed_integral<T>) {
      fields_.Get(name, out, static_cast<T>(bounds)...);
    } else if constexpr ((std::same_as<Bounds, Binary> || ...)) {
      GetBytes(name, out);
    } else if constexpr (NumberList<T>) {
      GetNumbers(name, out, static_cast<size_t>(bounds)...);
    } else if constexpr (std::same_as<T, bool> || std::same_as<T, uint64_t>) {
      fields_.Get(name, out);
    } else if constexpr (Text<T>) {
      fields_.Take(name, out);
      if (((out.size() > static_cast<size_t>(bounds)) || ...)) fields_.Reject(name, "is too long");
    } else if constexpr (Optional<T>) {
      (*this)(name, out.emplace());
    } else if constexpr (List<T>) {
      GetList(name, out, static_cast<size_t>(bounds)...);
    } else {
      const Json* value = fields_.FindObject(name);
      if (value != nullptr) Unpacker(*value, fields_.PathOf(name), fields_.error()).GetStruct(out);
    }
  }
  template <class T>
  void IfAny(std::string_view name, T& out) {
    if (fields_.Has(name)) (*this)(name, out);
  }

  template <class T>
  void GetStruct(T& out) {
    if constexpr (Variant<T>) {
      int32_t kind = 0;
      fields_.Get("kind", kind, 0, int32_t{std::variant_size_v<T>} - 1);
      Choose(out, static_cast<size_t>(kind));
      std::visit([this](auto& alternative) { VisitFields(alternative, *this); }, out);
    } else {
      VisitFields(out, *this);
    }
  }

  // Makes `out` its alternative `index`.
  template <size_t kIndex = 0, class T>
  static void Choose(T& out, size_t index) {
    if constexpr (kIndex < std::variant_size_v<T>) {
      if (index != kIndex) return Choose<kIndex + 1>(out, index);
      out.template emplace<kIndex>();
    }
  }

 private:
  template <class T>
  void GetBytes(std::string_view name, T& out) {
    constexpr size_t kElement = sizeof(typename T::value_type);
    const Json* value = fields_.Find(name);
    if (value == nullptr) return;
    if (!value->is_binary()) return fields_.Reject(name, "must be binary");
    const auto& bytes = value->get_binary();
    if (bytes.size() % kElement != 0) return fields_.Reject(name, "does not contain whole elements");
    out.resize(bytes.size() / kElement);
    if (!bytes.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  }
  template <class T>
  void GetNumbers(std::string_view name, T& out, size_t max = std::numeric_limits<size_t>::max()) {
    GetBytes(name, out);
    if (out.size() > max) return fields_.Reject(name, "has too many elements");
    if constexpr (std::is_floating_point_v<typename T::value_type>) {
      const bool finite = std::ranges::all_of(out, [](auto number) { return std::isfinite(number); });
      if (!finite) fields_.Reject(name, "must be finite");
    }
  }
  template <class T>
  void GetList(std::string_view name, T& out, size_t max = std::numeric_limits<size_t>::max()) {
    const Json* list = fields_.FindArray(name);
    if (list == nullptr) return;
    if (list->size() > max) return fields_.Reject(name, "has too many elements");
    const std::string path = fields_.PathOf(name) + "[]";
    out.clear();  // a member may have elements by default
    out.reserve(list->size());
    for (const Json& value : *list) {
      if (!fields_.ok()) return;
      if constexpr (Text<typename T::value_type>) {
        if (!value.is_string()) return fields_.Reject(name, "must be an array of strings");
        out.push_back(TakeText(value));
      } else {
        Unpacker(value, path, fields_.error()).GetStruct(out.emplace_back());
      }
    }
  }

  Fields fields_;
};

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
  const auto bounds = BoundsOf(kIsToDaemon<Message> ? Receiver::kDaemon : Receiver::kRunner, frame.type);
  if (!bounds) return Fail(ErrorCode::kInvalidArgument, fmt::format("unknown message type {}", frame.type));
  auto payload = ReadMessagePack(frame.payload, bounds->values);
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
          check_files("projector_files", alternative.projector_files);
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
namespace {

// Where it is among the messages.
uint16_t TypeOfSubmit() {
  static const auto type = static_cast<uint16_t>(kFirstType<ToRunner> + ToRunner(Submit{}).index());
  return type;
}

}  // namespace

Result<void> Check(const SubmitView& submit) {
  BoundsCheck check;
  check.Put(submit);
  if (!check.breach().empty()) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("the request's value of \"{}\" is not valid", check.breach()));
  }
  const size_t values_max = BoundsOf(Receiver::kRunner, TypeOfSubmit())->values;
  if (check.values() <= values_max) return {};
  return Fail(ErrorCode::kTooLarge, fmt::format("the request has more than {} values", values_max));
}
std::string Encode(const SubmitView& submit) {
  const uint16_t type = TypeOfSubmit();
  std::string frame;
  // A long text is not copied again and again.
  frame.reserve(kRequestBytes + TextBytes(submit.request.prompt) + ImageBytes(submit.request.prompt));
  AppendFrameOf(type, submit, frame);
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
      std::string().swap(buffer_);  // an assignment keeps the memory
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
  const auto type = GetLittleEndian<uint16_t>(rest.substr(kTypeAt));
  const auto bounds = BoundsOf(receiver_, type);
  if (!bounds) return BadFrame(fmt::format("unknown message type {}", type));
  const size_t length = GetLittleEndian<uint32_t>(rest.substr(kLengthAt));
  if (length > bounds->bytes) {
    return BadFrame(fmt::format("length {} of message type {} is over {}", length, type, bounds->bytes));
  }
  if (rest.size() - kHeaderBytes < length) return std::nullopt;
  Frame frame{type, std::string(rest.substr(kHeaderBytes, length))};
  begin_ += kHeaderBytes + length;
  return frame;
}

}  // namespace quire::api::ipc
