#include "runner/engine/process/link.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace quire::runner::engine {
namespace {

constexpr size_t kReadBytes = 64 << 10;

std::unexpected<api::Error> SocketFailed(const char* what) {
  return api::Fail(api::ErrorCode::kInternal, std::string(what) + ": " + std::strerror(errno));
}

}  // namespace

Link::Link(int fd, const api::ipc::ToDaemon& hello, Handlers handlers)
    : fd_(fd),
      wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      handlers_(std::move(handlers)),
      queued_(api::ipc::Encode(hello)),
      thread_([this] { Run(); }) {}

Link::~Link() {
  stopping_ = true;
  eventfd_write(wake_fd_.get(), 1);
  thread_.join();
}

void Link::Send(const api::ipc::ToDaemon& message) {
  bool first = false;
  {
    const api::MutexLock lock(mutex_);
    first = queued_.empty();
    api::ipc::AppendFrame(message, queued_);
  }
  // Frames queued behind others are sent with them.
  if (first) eventfd_write(wake_fd_.get(), 1);
}

bool Link::HasOutput() {
  if (written_ < writing_.size()) return true;
  writing_.clear();
  written_ = 0;
  const api::MutexLock lock(mutex_);
  std::swap(writing_, queued_);
  return !writing_.empty();
}

api::Result<bool> Link::ReadSome() {
  std::array<char, kReadBytes> bytes;
  const ssize_t n = recv(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (n == 0) return false;
  if (n < 0) {
    if (errno == EAGAIN || errno == EINTR) return true;
    return SocketFailed("reading from the daemon");
  }
  reader_.Append({bytes.data(), static_cast<size_t>(n)});
  while (true) {
    auto frame = reader_.Next();
    if (!frame) return std::unexpected(frame.error());
    if (!*frame) return true;
    auto message = api::ipc::DecodeToRunner(**frame);
    if (!message) return std::unexpected(message.error());
    handlers_.on_message(std::move(*message));
  }
}

api::Result<void> Link::WriteSome() {
  const ssize_t n =
      send(fd_.get(), writing_.data() + written_, writing_.size() - written_, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (n < 0 && errno != EAGAIN && errno != EINTR) return SocketFailed("writing to the daemon");
  written_ += n > 0 ? static_cast<size_t>(n) : 0;
  return {};
}

int Link::SendHeartbeatIfDue(std::chrono::steady_clock::time_point& next) {
  const auto now = std::chrono::steady_clock::now();
  if (now >= next) {
    Send(handlers_.heartbeat());
    next = now + kHeartbeatInterval;
  }
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(next - now).count());
}

void Link::Run() {
  pthread_setname_np(pthread_self(), "quire-link");
  auto next_heartbeat = std::chrono::steady_clock::now() + kHeartbeatInterval;
  while (true) {
    const int timeout_ms = SendHeartbeatIfDue(next_heartbeat);
    bool output = HasOutput();
    if (stopping_ && !output) return;
    if (output) {
      if (auto written = WriteSome(); !written) return handlers_.on_end(written);
      output = written_ < writing_.size();
    }
    std::array<pollfd, 2> polled = {{{fd_.get(), static_cast<short>(output ? POLLIN | POLLOUT : POLLIN), 0},
                                     {wake_fd_.get(), POLLIN, 0}}};
    if (poll(polled.data(), polled.size(), timeout_ms) < 0 && errno != EINTR)
      return handlers_.on_end(SocketFailed("poll"));
    eventfd_t ignored = 0;
    if ((polled[1].revents & POLLIN) != 0) eventfd_read(wake_fd_.get(), &ignored);
    if ((polled[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
      const auto more = ReadSome();
      if (!more) return handlers_.on_end(std::unexpected(more.error()));
      if (!*more) return handlers_.on_end({});
    }
  }
}

}  // namespace quire::runner::engine
