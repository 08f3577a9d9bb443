#include "api/ipc/frame_bounds.h"

#include <fmt/format.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "api/base/utf8.h"
#include "api/json/read.h"

namespace quire::api::ipc {
namespace {

constexpr size_t kKiB = size_t{1} << 10;
constexpr size_t kMiB = size_t{1} << 20;

constexpr FrameBounds kSmallFrame{.bytes = 4 * kKiB, .values = 64};
constexpr FrameBounds kErrorFrame{.bytes = 64 * kKiB, .values = 64};

// The bounds of each message to the daemon, in their order.
constexpr std::array<FrameBounds, std::variant_size_v<ToDaemon>> kToDaemon = {{
    kSmallFrame,                                          // Hello
    kSmallFrame,                                          // LoadProgress
    kErrorFrame,                                          // Loaded: names of the model's file
    kErrorFrame,                                          // LoadFailed
    {.bytes = 64 * kMiB, .values = 64 * kKiB},            // Inspected: a vocabulary as JSON
    {.bytes = kEventFrameBytesMax, .values = 64 * kKiB},  // RequestEvent
    kSmallFrame,                                          // Heartbeat
    kErrorFrame,                                          // Converted
    kSmallFrame,                                          // MemoryEstimate
    {.bytes = kMiB, .values = 128 * kKiB},  // EngineInspected: 17 values for each of its sequences
    {.bytes = kMiB, .values = 64 * kKiB},   // CacheInspected: 37 values for each of its nodes
}};
constexpr FrameBounds kToRunner{.bytes = kFrameBytesMax, .values = kJsonValuesMax};

Error TooLarge(std::string_view what, size_t bytes_max) {
  return {ErrorCode::kTooLarge, fmt::format("{} has more than {} bytes", what, bytes_max)};
}

std::string Shortened(std::string_view text) {
  constexpr size_t kTextMax = 16 * kKiB;
  if (text.size() <= kTextMax) return std::string(text);
  size_t size = kTextMax;
  while (size > 0 && IsContinuationByte(text[size])) --size;
  return std::string(text.substr(0, size)) + "...";
}

// It may quote what a client sent, or a model's file.
Error Shortened(const Error& error) {
  return {error.code, Shortened(error.message), Shortened(error.field), error.tokens, error.tokens_max};
}

}  // namespace

std::optional<FrameBounds> BoundsOf(Receiver receiver, uint16_t type) {
  const bool to_daemon = receiver == Receiver::kDaemon;
  const int place = type - (to_daemon ? kFirstTypeToDaemon : kFirstTypeToRunner);
  const size_t count = to_daemon ? std::variant_size_v<ToDaemon> : std::variant_size_v<ToRunner>;
  if (place < 0 || std::cmp_greater_equal(place, count)) return std::nullopt;
  return to_daemon ? kToDaemon[static_cast<size_t>(place)] : kToRunner;
}

std::optional<ToDaemon> InsteadOf(const ToDaemon& message) {
  const size_t bytes_max = kToDaemon[message.index()].bytes;
  if (const auto* event = std::get_if<RequestEvent>(&message)) {
    const auto* failed = std::get_if<Failed>(&event->event);
    Error error =
        failed != nullptr ? Shortened(failed->error) : TooLarge("one event of the answer", bytes_max);
    return RequestEvent{event->id, Failed{std::move(error)}};
  }
  if (const auto* inspected = std::get_if<Inspected>(&message)) {
    Inspected instead{};
    instead.error =
        inspected->error ? Shortened(*inspected->error) : TooLarge("the description of the model", bytes_max);
    return instead;
  }
  if (const auto* failed = std::get_if<LoadFailed>(&message)) return LoadFailed{Shortened(failed->error)};
  const auto* converted = std::get_if<Converted>(&message);
  if (converted != nullptr && converted->error) return Converted{Shortened(*converted->error)};
  return std::nullopt;
}

}  // namespace quire::api::ipc
