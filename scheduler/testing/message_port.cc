// RunnerLink without frames and sockets: a queue of messages in each direction. What it promises is as in
// scheduler/runner_link.h; the coroutine that writes has nothing to do here.
#include <sys/select.h>

#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "scheduler/runner_link.h"
#include "scheduler/testing/runner_port.h"
#include "scheduler/testing/simulated_world.h"

// There are no descriptors here, so none is ever ready. Asio asks the kernel in every step.
extern "C" int select(int, fd_set*, fd_set*, fd_set*, timeval*) { return 0; }

namespace quire::scheduler {
namespace {

// Both ends have it.
struct Channel {
  std::deque<std::optional<api::ipc::ToDaemon>> to_daemon;  // nothing: bytes that are no frame
  std::vector<api::ipc::ToRunner> to_runner;
  bool runner_closed = false;
  bool daemon_closed = false;
  AsyncEvent* arrived = nullptr;  // the link's, while that is open
};

// The channel of the runner that was started last; the link is made in the same handler.
std::shared_ptr<Channel> unlinked;
// By the link, from its beginning to its end: RunnerLink has no member for it.
std::unordered_map<const RunnerLink*, std::shared_ptr<Channel>> channels;

}  // namespace

struct simulation::RunnerPort::Impl {
  void Notify() const {
    if (channel->arrived != nullptr) channel->arrived->Notify();
  }
  const std::shared_ptr<Channel> channel = std::make_shared<Channel>();
};

// ---- the runner's end ----

namespace simulation {

RunnerPort::RunnerPort(boost::asio::local::stream_protocol::socket& /*daemon*/)
    : impl_(std::make_unique<Impl>()) {
  if (unlinked) World::Current().Break("a runner was started and not linked");
  unlinked = impl_->channel;
}

// The link may be gone before.
RunnerPort::~RunnerPort() {
  impl_->channel->runner_closed = true;
  if (unlinked == impl_->channel) unlinked.reset();
}

void RunnerPort::Send(std::vector<api::ipc::ToDaemon> messages) {
  if (!open()) return;
  for (api::ipc::ToDaemon& message : messages) impl_->channel->to_daemon.emplace_back(std::move(message));
  impl_->Notify();
}

void RunnerPort::SendGarbage() {
  if (!open()) return;
  impl_->channel->to_daemon.emplace_back(std::nullopt);
  impl_->Notify();
}

RunnerPort::Received RunnerPort::Receive() {
  if (impl_->channel->daemon_closed) return {.closed = true};
  return {.messages = std::exchange(impl_->channel->to_runner, {})};
}

void RunnerPort::Close() {
  if (!std::exchange(impl_->channel->runner_closed, true)) impl_->Notify();
}

bool RunnerPort::open() const { return !impl_->channel->runner_closed; }

}  // namespace simulation

// ---- the daemon's end ----

RunnerLink::RunnerLink(boost::asio::local::stream_protocol::socket socket, std::weak_ptr<Listener> listener,
                       size_t queued_bytes_max)
    : socket_(std::move(socket)),
      listener_(std::move(listener)),
      wake_writer_(socket_.get_executor()),
      room_({.total = queued_bytes_max}) {
  if (!unlinked) simulation::World::Current().Break("a link without a runner");
  unlinked->arrived = &wake_writer_;
  channels[this] = std::exchange(unlinked, nullptr);
}

void RunnerLink::Start(Gate& gate) { gate.Start(Read(shared_from_this())); }

void RunnerLink::Send(const api::ipc::ToRunner& message) {
  if (end_) return;
  if (!HasRoomFor(0)) return End({.protocol_error = true, .reason = "it stopped reading"});
  channels.at(this)->to_runner.push_back(message);
}

api::Result<void> RunnerLink::TrySend(const api::ipc::SubmitView& submit) {
  if (!HasRoomFor(0)) return api::Fail(api::ErrorCode::kOverloaded, "the model runner is overloaded");
  Send(api::ipc::Submit{submit.id, submit.request, submit.resume});
  return {};
}

bool RunnerLink::HasRoomFor(size_t /*bytes*/, const fair::PartyId& /*party*/) {
  return end_ || channels.at(this)->to_runner.size() < kQueuedFramesMax;
}

void RunnerLink::Close() { End({.protocol_error = false, .reason = "the connection was closed"}); }

void RunnerLink::End(LinkEnd end) {
  if (end_) return;
  end_ = std::move(end);
  Channel& channel = *channels.at(this);
  channel.daemon_closed = true;
  channel.arrived = nullptr;
  wake_writer_.Notify();
  channels.erase(this);
}

boost::asio::awaitable<void> RunnerLink::Read(Self self) {
  while (!self->end_) {
    if (std::optional<LinkEnd> end = self->Receive({})) {
      self->End(*std::move(end));
    } else if (!self->end_) {
      co_await self->wake_writer_.Wait();
    }
  }
  if (const std::shared_ptr<Listener> listener = self->listener_.lock()) listener->OnLinkEnd(*self->end_);
}

std::optional<LinkEnd> RunnerLink::Receive(std::string_view /*bytes*/) {
  const std::shared_ptr<Channel> channel = channels.at(this);
  while (!end_ && !channel->to_daemon.empty()) {
    std::optional<api::ipc::ToDaemon> message = std::move(channel->to_daemon.front());
    channel->to_daemon.pop_front();
    if (!message) return LinkEnd{.protocol_error = true, .reason = "protocol error: garbage"};
    const std::shared_ptr<Listener> listener = listener_.lock();
    if (!listener) return LinkEnd{.protocol_error = false, .reason = "no receiver"};
    if (const auto taken = listener->OnMessage(*std::move(message)); !taken)
      return LinkEnd{.protocol_error = true, .reason = "protocol error: " + taken.error().message};
  }
  if (!end_ && channel->runner_closed)
    return LinkEnd{.protocol_error = false, .reason = "closed the connection"};
  return std::nullopt;
}

}  // namespace quire::scheduler
