// The runner's end of the socketpair to the daemon: one I/O thread that cuts the byte stream into messages
// and writes what other threads send.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "api/base/error.h"
#include "api/base/file_descriptor.h"
#include "api/base/mutex.h"
#include "api/ipc/messages.h"

namespace quire::runner::engine {

class Link {
 public:
  // Called on the I/O thread.
  struct Handlers {
    std::function<void(api::ipc::ToRunner)> on_message;  // every message, in order
    std::function<api::ipc::ToDaemon()> heartbeat;       // every kHeartbeatInterval: makes the heartbeat
    // Once: with nothing when the daemon closed the link, with the reason when what it sent does not parse or
    // the socket failed.
    std::function<void(api::Result<void> reason)> on_end;
  };
  static constexpr std::chrono::seconds kHeartbeatInterval{1};

  // Takes the descriptor over and starts the I/O thread, which says `hello` first.
  Link(int fd, const api::ipc::ToDaemon& hello, Handlers handlers);
  ~Link();  // writes out what was sent, stops the thread and closes the socket
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Any thread; never blocks. The queue is bounded by the credit of the running requests.
  void Send(const api::ipc::ToDaemon& message);

 private:
  void Run();
  api::Result<bool> ReadSome();  // false at the end of the stream
  api::Result<void> WriteSome();
  bool HasOutput();
  // Sends a heartbeat if it is due. Milliseconds to the next.
  int SendHeartbeatIfDue(std::chrono::steady_clock::time_point& next);

  const api::FileDescriptor fd_;
  const api::FileDescriptor wake_fd_;
  const Handlers handlers_;
  api::ipc::FrameReader reader_{api::ipc::Receiver::kRunner};  // I/O thread
  std::string writing_;                                        // I/O thread
  size_t written_ = 0;                                         // of writing_
  api::Mutex mutex_;
  std::string queued_ GUARDED_BY(mutex_);
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace quire::runner::engine
