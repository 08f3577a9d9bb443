// Frames to and from one runner over its socket.
//
// Requests wait in the daemon while the runner reads others. Control frames (all that are not a Submit) have
// room of their own: however much requests send, a credit or a cancel is queued, and finds the link full only
// if the runner has stopped reading. Parties share the room for requests above kSmallFrameBytes, and leave
// some for the next one.
//
// The runner is not trusted: what it sends is decoded with bounds, what waits to be sent to it is bounded,
// and either going wrong ends the link, never the daemon.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/system/error_code.hpp>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "api/base/fair/party.h"
#include "api/base/fair/quota.h"
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
  static constexpr size_t kQueuedFramesMax = 16384;  // of requests, and again of control frames
  static constexpr size_t kQueuedBytesMax = 2 * api::ipc::kFrameBytesMax;  // of requests
  static constexpr size_t kSmallFrameBytes = size_t{64} << 10;
  static constexpr size_t kFramesTogether = 64;  // sent in one go, of kSmallFrameBytes in all
  static constexpr const char* kBehind = "server busy, please try again.  the model runner is overloaded";

  // Called from the reader or the writer, never from inside Send() or Close().
  class Listener {
   public:
    virtual ~Listener() = default;
    // An error ends the link as a protocol error with its message.
    virtual api::Result<void> OnMessage(api::ipc::ToDaemon message) = 0;
    // A request was sent: there is room for others.
    virtual void OnRoom() {}
    // Called once, last.
    virtual void OnLinkEnd(const LinkEnd& end) = 0;
  };

  RunnerLink(boost::asio::local::stream_protocol::socket socket, std::weak_ptr<Listener> listener,
             size_t queued_bytes_max = kQueuedBytesMax);

  void Start(Gate& gate);
  // Queues a control message. Dropped when the link is over. Beyond the bound the runner counts as stopped
  // reading, and the link ends. A Cancel or a Credit is sent before large requests that wait; the Cancel of a
  // request that still waits takes it back instead.
  void Send(const api::ipc::ToRunner& message);
  // Queues a request. kTooLarge if it does not fit a frame, kOverloaded if the runner is behind with reading:
  // the link goes on. A small one is sent before large ones that wait.
  api::Result<void> TrySend(const api::ipc::SubmitView& submit);
  // Whether a request of this size may be sent now.
  bool HasRoomFor(size_t bytes, const fair::PartyId& party = {});
  void Close();

 private:
  using Self = std::shared_ptr<RunnerLink>;
  static boost::asio::awaitable<void> Read(Self self);
  static boost::asio::awaitable<void> ReadFrames(Self self);
  static boost::asio::awaitable<void> Write(Self self);
  static boost::asio::awaitable<void> WriteFrames(Self self);
  std::optional<LinkEnd> Receive(std::string_view bytes);
  struct Frame {
    std::string bytes;
    std::optional<api::RequestId> submits = {};  // nothing: a control frame
    fair::Quota::Lease room = {};
  };
  // The frames of one write. Their memory is there before the first of them.
  struct FramesBeingSent {
    FramesBeingSent() {
      frames.reserve(kFramesTogether);
      buffers.reserve(kFramesTogether);
    }
    std::vector<Frame> frames;
    std::vector<boost::asio::const_buffer> buffers;
  };
  // The first of the queue, and those behind it while all together are small. REQUIRES: there is one,
  // `sending` is empty.
  void PopFrames(FramesBeingSent& sending);
  static boost::asio::awaitable<boost::system::error_code> SendFrames(Self self, FramesBeingSent& sending);
  void ReleaseSent(FramesBeingSent& sending);
  void Queue(Frame frame, const std::deque<Frame>::iterator& position);
  std::deque<Frame>::iterator BeforeLargeFrames();
  std::deque<Frame>::iterator SubmitOf(api::RequestId id);
  void Release(const Frame& frame);
  void End(LinkEnd end);

  boost::asio::local::stream_protocol::socket socket_;
  std::weak_ptr<Listener> listener_;
  AsyncEvent wake_writer_;
  api::ipc::FrameReader frames_{api::ipc::Receiver::kDaemon};
  fair::Quota room_;  // for requests in the queue, or being sent
  std::deque<Frame> queue_;
  size_t control_frames_ = 0;  // in the queue, or being sent
  size_t request_frames_ = 0;
  std::optional<LinkEnd> end_;
};

}  // namespace quire::scheduler
