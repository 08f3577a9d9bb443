// The interface of every dialect's reply encoder: events of one request in, bytes of one HTTP reply out.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "api/base/event.h"

namespace quire::api {

// Where an event belongs, and what only the daemon can measure.
struct EventContext {
  size_t choice = 0;  // which of the request's generations; less than their number
  std::chrono::system_clock::time_point now = {};
  std::chrono::nanoseconds total{};  // since the request arrived
  std::chrono::nanoseconds load{};   // of it, waiting for the model to load
};

// The reply to one request, streamed or not. One per request; not thread-safe.
class ReplyEncoder {
 public:
  virtual ~ReplyEncoder() = default;

  bool streams() const { return !content_type_.empty(); }
  std::string_view content_type() const { return content_type_; }  // of a stream
  // Sent as a keep-alive between two chunks of a stream, once the prompt is ready; empty: nothing.
  std::string_view keep_alive() const { return keep_alive_; }

  // Bytes to send now, possibly none. Streamed: whole chunks. Not streamed: nothing until the last Finished,
  // then the whole body. Failed gives an error that fits only after the first byte of a stream; before it the
  // reply is the dialect's ErrorBody().
  std::string OnEvent(const Event& event, const EventContext& context = {}) {
    if (const auto* ready = std::get_if<PromptReady>(&event)) return OnReady(*ready, context);
    if (const auto* delta = std::get_if<TextDelta>(&event)) return OnDelta(*delta, context);
    if (const auto* finished = std::get_if<Finished>(&event)) return OnFinished(*finished, context);
    if (const auto* progress = std::get_if<PrefillProgress>(&event)) return OnProgress(*progress, context);
    return OnFailed(std::get<Failed>(event).error);
  }

  // About how many bytes of the request, or of the answer so far, the bytes of this event repeat. Of an event
  // that may be the last one of a reply that is not streamed: those of the whole reply, without the answers.
  virtual size_t RepeatedBytes(const Event& event, size_t choice) const {
    static_cast<void>(event), static_cast<void>(choice);
    return 0;
  }

 protected:
  ReplyEncoder() = default;  // not streamed
  // `content_type` is a constant.
  ReplyEncoder(bool stream, std::string_view content_type, std::string_view keep_alive)
      : content_type_(stream ? content_type : std::string_view()), keep_alive_(keep_alive) {}

  void SetKeepAlive(std::string bytes) { keep_alive_ = std::move(bytes); }

 private:
  virtual std::string OnReady(const PromptReady&, const EventContext&) { return {}; }
  virtual std::string OnProgress(const PrefillProgress&, const EventContext&) { return {}; }
  virtual std::string OnDelta(const TextDelta& delta, const EventContext& context) = 0;
  virtual std::string OnFinished(const Finished& finished, const EventContext& context) = 0;
  virtual std::string OnFailed(const Error&) { return {}; }

  std::string_view content_type_ = {};
  std::string keep_alive_ = {};
};

inline constexpr std::string_view kEventStream = "text/event-stream";

}  // namespace quire::api
