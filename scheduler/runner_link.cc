#include "scheduler/runner_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <exception>
#include <iterator>
#include <utility>
#include <variant>
#include <vector>

namespace quire::scheduler {
namespace {

using boost::asio::as_tuple;
using boost::asio::use_awaitable;

constexpr size_t kReadBytes = size_t{64} << 10;
constexpr size_t kSmallFrameBytes = size_t{64} << 10;

LinkEnd EndByProtocolError(const std::string& what) {
  return {.protocol_error = true, .reason = "protocol error: " + what};
}

}  // namespace

RunnerLink::RunnerLink(boost::asio::local::stream_protocol::socket socket, std::weak_ptr<Listener> listener)
    : socket_(std::move(socket)), listener_(std::move(listener)), wake_writer_(socket_.get_executor()) {}

void RunnerLink::Start(Gate& gate) {
  gate.Start(Read(shared_from_this()));
  gate.Start(Write(shared_from_this()));
}

bool RunnerLink::HasRoomFor(size_t bytes) const {
  return queue_.size() < kQueuedFramesMax && bytes <= kQueuedBytesMax - queued_bytes_;
}

void RunnerLink::Send(const api::ipc::ToRunner& message) {
  if (end_) return;
  std::string frame = api::ipc::Encode(message);
  if (!HasRoomFor(frame.size())) return End({.protocol_error = true, .reason = "it stopped reading"});
  Queue(std::move(frame));
}

api::Result<void> RunnerLink::TrySend(const api::ipc::ToRunner& message) {
  std::string frame = api::ipc::Encode(message);
  if (frame.empty()) {
    return api::Fail(api::ErrorCode::kTooLarge,
                     fmt::format("the encoded request is larger than {} bytes", api::ipc::kFrameBytesMax));
  }
  if (!HasRoomFor(frame.size())) {
    return api::Fail(api::ErrorCode::kOverloaded,
                     "server busy, please try again.  the model runner is overloaded");
  }
  if (end_) return {};
  Queue(std::move(frame));
  // No frame before the first one of a request is about it. A short chat waits for the large frame that is being sent, not
  // for those behind it.
  if (std::holds_alternative<api::ipc::Submit>(message) && queue_.back().size() <= kSmallFrameBytes) {
    const auto last = std::prev(queue_.end());
    const auto large = std::find_if(
        queue_.begin(), last, [](const std::string& queued) { return queued.size() > kSmallFrameBytes; });
    std::rotate(large, last, queue_.end());
  }
  return {};
}

void RunnerLink::Queue(std::string frame) {
  queued_bytes_ += frame.size();
  queue_.push_back(std::move(frame));
  wake_writer_.Notify();
}

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
  try {
    co_await ReadFrames(self);
  } catch (const std::exception& e) {
    self->End({.protocol_error = false, .reason = e.what()});
  }
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
std::optional<LinkEnd> RunnerLink::Receive(std::string_view bytes) try {
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
} catch (const std::exception& e) {
  return EndByProtocolError(e.what());
}

boost::asio::awaitable<void> RunnerLink::Write(Self self) {
  try {
    co_await WriteFrames(self);
  } catch (const std::exception& e) {
    self->End({.protocol_error = false, .reason = e.what()});
  }
  self->queue_.clear();
}

boost::asio::awaitable<void> RunnerLink::WriteFrames(Self self) {
  while (!self->end_) {
    if (self->queue_.empty()) {
      co_await self->wake_writer_.Wait();
      continue;
    }
    const std::string frame = std::move(self->queue_.front());
    self->queue_.pop_front();
    const auto [error, bytes] =
        co_await boost::asio::async_write(self->socket_, boost::asio::buffer(frame), as_tuple(use_awaitable));
    self->queued_bytes_ -= frame.size();
    if (error) {
      // Data that the runner sent before is still read; after it the reader finds the end.
      boost::system::error_code ignored;
      self->socket_.shutdown(boost::asio::socket_base::shutdown_receive, ignored);
      break;
    }
  }
}

}  // namespace quire::scheduler
