#include "scheduler/runner_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <new>
#include <span>
#include <utility>
#include <variant>
#include <vector>

namespace quire::scheduler {
namespace {

using boost::asio::as_tuple;
using boost::asio::use_awaitable;

constexpr size_t kReadBytes = size_t{64} << 10;

// The large requests of a party leave an eighth of all. One that waits for room gets it once the others were
// sent.
constexpr size_t LimitOfParty(size_t queued_bytes_max) { return queued_bytes_max - queued_bytes_max / 8; }
static_assert(api::ipc::kHeaderBytes + api::ipc::kFrameBytesMax <= LimitOfParty(RunnerLink::kQueuedBytesMax));

LinkEnd EndByProtocolError(const std::string& what) {
  return {.protocol_error = true, .reason = "protocol error: " + what};
}

}  // namespace

RunnerLink::RunnerLink(boost::asio::local::stream_protocol::socket socket, std::weak_ptr<Listener> listener,
                       size_t queued_bytes_max)
    : socket_(std::move(socket)),
      listener_(std::move(listener)),
      wake_writer_(socket_.get_executor()),
      room_({.total = queued_bytes_max,
             .small = kSmallFrameBytes,
             .large = queued_bytes_max,
             .party = LimitOfParty(queued_bytes_max),
             .leaves_room = true}) {}

void RunnerLink::Start(Gate& gate) {
  gate.Start(Read(shared_from_this()));
  gate.Start(Write(shared_from_this()));
}

bool RunnerLink::HasRoomFor(size_t bytes, const fair::PartyId& party) {
  return request_frames_ < kQueuedFramesMax && !fair::Quota::Lease(room_, party).RefusalFor(bytes);
}

void RunnerLink::Send(const api::ipc::ToRunner& message) {
  if (end_) return;
  auto position = queue_.end();
  if (const auto* cancel = std::get_if<api::ipc::Cancel>(&message)) {
    if (const auto submit = SubmitOf(cancel->id); submit != queue_.end()) {
      Release(*submit);
      queue_.erase(submit);
      return;
    }
    position = BeforeLargeFrames();
  } else if (const auto* credit = std::get_if<api::ipc::Credit>(&message)) {
    // A request that goes on in another runner gets credit for what the last one sent, maybe before it is
    // there.
    if (SubmitOf(credit->id) == queue_.end()) position = BeforeLargeFrames();
  }
  if (control_frames_ >= kQueuedFramesMax)
    return End({.protocol_error = true, .reason = "it stopped reading"});
  Queue({api::ipc::Encode(message)}, position);
}

api::Result<void> RunnerLink::TrySend(const api::ipc::SubmitView& submit) {
  // The runner would take it for a broken link, and end.
  if (auto checked = api::ipc::Check(submit); !checked) return checked;
  std::string bytes;
  try {
    bytes = api::ipc::Encode(submit);
  } catch (const std::bad_alloc&) {  // the largest allocation of a request, of which nothing is changed yet
    return api::Fail(api::ErrorCode::kUnavailable, "there is no memory for the request");
  }
  if (bytes.empty()) {
    return api::Fail(api::ErrorCode::kTooLarge,
                     fmt::format("the encoded request is larger than {} bytes", api::ipc::kFrameBytesMax));
  }
  fair::Quota::Lease room(room_, submit.request.client.party);
  if (request_frames_ >= kQueuedFramesMax || room.GrowTo(bytes.size()))
    return api::Fail(api::ErrorCode::kOverloaded, kBehind);
  if (end_) return {};
  // No frame before the first one of a request is about it. A short chat waits for the large frame that is
  // being sent, not for those behind it.
  const auto position = bytes.size() <= kSmallFrameBytes ? BeforeLargeFrames() : queue_.end();
  Queue({std::move(bytes), submit.id, std::move(room)}, position);
  return {};
}

std::deque<RunnerLink::Frame>::iterator RunnerLink::BeforeLargeFrames() {
  return std::ranges::find_if(queue_,
                              [](const Frame& frame) { return frame.bytes.size() > kSmallFrameBytes; });
}

// The end: it is not in the queue.
std::deque<RunnerLink::Frame>::iterator RunnerLink::SubmitOf(api::RequestId id) {
  return std::ranges::find_if(queue_, [id](const Frame& frame) { return frame.submits == id; });
}

void RunnerLink::Queue(Frame frame, const std::deque<Frame>::iterator& position) {
  ++(frame.submits ? request_frames_ : control_frames_);
  queue_.insert(position, std::move(frame));
  wake_writer_.Notify();
}

// The frame was sent, or never will be.
void RunnerLink::Release(const Frame& frame) { --(frame.submits ? request_frames_ : control_frames_); }

void RunnerLink::Close() { End({.protocol_error = false, .reason = "the connection was closed"}); }

// The closed socket brings the reader back, which then tells the listener.
void RunnerLink::End(LinkEnd end) {
  if (end_) return;
  end_ = std::move(end);
  boost::system::error_code ignored;
  socket_.close(ignored);
  wake_writer_.Notify();
}

boost::asio::awaitable<void> RunnerLink::Read(Self self) {
  co_await ReadFrames(self);
  if (const std::shared_ptr<Listener> listener = self->listener_.lock()) listener->OnLinkEnd(*self->end_);
}

// Until the link has ended.
boost::asio::awaitable<void> RunnerLink::ReadFrames(Self self) {
  std::vector<char> buffer(kReadBytes);
  while (!self->end_) {
    const auto [error, bytes] =
        co_await self->socket_.async_read_some(boost::asio::buffer(buffer), as_tuple(use_awaitable));
    if (self->end_) break;
    if (error) {
      self->End({.protocol_error = false, .reason = "closed the connection"});
    } else if (std::optional<LinkEnd> end = self->Receive({buffer.data(), bytes})) {
      self->End(*std::move(end));
    }
  }
}

// Hands on every whole frame there is. An answer ends the link.
std::optional<LinkEnd> RunnerLink::Receive(std::string_view bytes) {
  frames_.Append(bytes);
  while (!end_) {
    auto frame = frames_.Next();
    if (!frame) return EndByProtocolError(frame.error().message);
    if (!*frame) return std::nullopt;
    auto message = api::ipc::DecodeToDaemon(**frame);
    if (!message) return EndByProtocolError(message.error().message);
    const std::shared_ptr<Listener> listener = listener_.lock();
    if (!listener) return LinkEnd{.protocol_error = false, .reason = "no receiver"};
    if (const auto taken = listener->OnMessage(*std::move(message)); !taken)
      return EndByProtocolError(taken.error().message);
  }
  return std::nullopt;
}

boost::asio::awaitable<void> RunnerLink::Write(Self self) {
  co_await WriteFrames(self);
  self->queue_.clear();
}

// A frame at a time, the last one would wait for everything else that the I/O thread has to do, as many times
// as frames wait before it.
void RunnerLink::PopFrames(FramesBeingSent& sending) {
  size_t bytes = 0;
  do {
    bytes += queue_.front().bytes.size();
    Frame& frame = sending.frames.emplace_back(std::move(queue_.front()));
    sending.buffers.emplace_back(boost::asio::buffer(frame.bytes));
    queue_.pop_front();
  } while (!queue_.empty() && sending.frames.size() < kFramesTogether &&
           bytes + queue_.front().bytes.size() <= kSmallFrameBytes);
}

// Not with async_write(): that sends 16 buffers at a time.
boost::asio::awaitable<boost::system::error_code> RunnerLink::SendFrames(Self self,
                                                                         FramesBeingSent& sending) {
  std::span<boost::asio::const_buffer> left = sending.buffers;
  while (!left.empty()) {
    // Sends a large frame in pieces: a runner that reads fast would else take all of it in one turn.
    const boost::asio::const_buffer piece = boost::asio::buffer(left.front(), kSmallFrameBytes);
    const bool large = piece.size() < left.front().size();
    const auto buffers = large ? std::span(&piece, 1) : std::span<const boost::asio::const_buffer>(left);
    auto [error, sent] = co_await self->socket_.async_write_some(buffers, as_tuple(use_awaitable));
    if (error) co_return error;
    for (; !left.empty() && sent >= left.front().size(); left = left.subspan(1)) sent -= left.front().size();
    if (!left.empty()) left.front() += sent;
  }
  co_return boost::system::error_code();
}

void RunnerLink::ReleaseSent(FramesBeingSent& sending) {
  bool room = false;
  for (const Frame& frame : sending.frames) {
    Release(frame);
    if (frame.submits) room = true;
  }
  sending.buffers.clear();
  sending.frames.clear();
  if (const auto listener = room ? listener_.lock() : nullptr) listener->OnRoom();
}

boost::asio::awaitable<void> RunnerLink::WriteFrames(Self self) {
  FramesBeingSent sending;
  while (!self->end_) {
    if (self->queue_.empty()) {
      co_await self->wake_writer_.Wait();
      continue;
    }
    self->PopFrames(sending);
    const boost::system::error_code error = co_await SendFrames(self, sending);
    self->ReleaseSent(sending);
    if (error) {
      // Data that the runner sent before is still read; after it the reader finds the end.
      boost::system::error_code ignored;
      self->socket_.shutdown(boost::asio::socket_base::shutdown_receive, ignored);
      break;
    }
  }
}

}  // namespace quire::scheduler
