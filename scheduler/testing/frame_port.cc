#include <sys/socket.h>

#include <array>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "api/base/file_descriptor.h"
#include "scheduler/testing/runner_port.h"
#include "scheduler/testing/simulated_world.h"

namespace quire::scheduler::simulation {

namespace ipc = api::ipc;

struct RunnerPort::Impl {
  void Write(std::string_view bytes) const {
    if (link.get() < 0 || bytes.empty()) return;
    const ssize_t written = ::send(link.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (written < 0) return;  // the scheduler has closed its end
    if (static_cast<size_t>(written) != bytes.size())
      World::Current().Break("the link of a simulated runner is full");
  }

  api::FileDescriptor link;
  ipc::FrameReader frames{ipc::Receiver::kRunner};
};

RunnerPort::RunnerPort(boost::asio::local::stream_protocol::socket& daemon)
    : impl_(std::make_unique<Impl>()) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0) {
    throw std::runtime_error("socketpair");
  }
  daemon.assign(boost::asio::local::stream_protocol(), ends[0]);
  impl_->link = api::FileDescriptor(ends[1]);
}

RunnerPort::~RunnerPort() = default;

void RunnerPort::Send(std::vector<ipc::ToDaemon> messages) {
  std::string frames;
  for (const ipc::ToDaemon& message : messages) ipc::AppendFrame(message, frames);
  impl_->Write(frames);
}

void RunnerPort::SendGarbage() { impl_->Write(std::string(40, '\x5a')); }

RunnerPort::Received RunnerPort::Receive() {
  char buffer[4096];
  while (true) {
    const ssize_t read = ::recv(impl_->link.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
    if (read < 0) break;
    if (read == 0) return {.closed = true};
    impl_->frames.Append({buffer, static_cast<size_t>(read)});
  }
  Received received;
  while (true) {
    auto frame = impl_->frames.Next();
    if (!frame) World::Current().Break("the scheduler sent a broken frame");
    if (!frame || !*frame) return received;
    auto message = ipc::DecodeToRunner(**frame);
    if (message) {
      received.messages.push_back(*std::move(message));
    } else {
      World::Current().Break("the scheduler sent a broken message");
    }
  }
}

void RunnerPort::Close() { impl_->link = api::FileDescriptor(); }

bool RunnerPort::open() const { return impl_->link.get() >= 0; }

}  // namespace quire::scheduler::simulation
