// Frames to and from one runner over its socket.
//
// The runner is not trusted: what it sends is decoded with bounds, what waits to be sent to it is bounded,
// and either going wrong ends the link, never the daemon.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "api/base/error.h"
#include "api/ipc/messages.h"
#include "scheduler/async_event.h"
#include "scheduler/gate.h"

namespace quire::scheduler {

// Why a link is over.
struct LinkEnd {
  bool protocol_error = false;  // the runner broke the protocol or stopped reading; else it closed its end
  std::string reason;
};

// I/O thread only. Two coroutines, a reader and a writer, run from Start() until the end and keep it alive.
class RunnerLink : public std::enable_shared_from_this<RunnerLink> {
 public:
  static constexpr size_t kQueuedFramesMax = 16384;
  static constexpr size_t kQueuedBytesMax = 2 * api::ipc::kFrameBytesMax;

  // Called from the reader, never from inside Send() or Close().
  class Listener {
   public:
    virtual ~Listener() = default;
    // An error ends the link as a protocol error with its message.
    virtual api::Result<void> OnMessage(api::ipc::ToDaemon message) = 0;
    // Called once, last.
    virtual void OnLinkEnd(const LinkEnd& end) = 0;
  };

  RunnerLink(boost::asio::local::stream_protocol::socket socket, std::weak_ptr<Listener> listener);

  void Start(Gate& gate);
  // Queues a message. Dropped when the link is over. Beyond the bounds the runner counts as stopped reading, and the
  // link ends.
  void Send(const api::ipc::ToRunner& message);
  // As Send(), but the link goes on where there is no room: kTooLarge if the message does not fit a frame, kOverloaded if
  // the runner is behind with reading. A small Submit is sent before large frames that wait.
  api::Result<void> TrySend(const api::ipc::ToRunner& message);
  // Whether a frame of this size may be sent now.
  bool HasRoomFor(size_t bytes) const;
  void Close();

 private:
  using Self = std::shared_ptr<RunnerLink>;
  static boost::asio::awaitable<void> Read(Self self);
  static boost::asio::awaitable<void> ReadFrames(Self self);
  static boost::asio::awaitable<void> Write(Self self);
  static boost::asio::awaitable<void> WriteFrames(Self self);
  std::optional<LinkEnd> Receive(std::string_view bytes);
  void Queue(std::string frame);
  void End(LinkEnd end);

  boost::asio::local::stream_protocol::socket socket_;
  std::weak_ptr<Listener> listener_;
  AsyncEvent wake_writer_;
  api::ipc::FrameReader frames_;
  std::deque<std::string> queue_;
  size_t queued_bytes_ = 0;
  std::optional<LinkEnd> end_;
};

}  // namespace quire::scheduler
