// The runner's end of the socketpair to the daemon: one I/O thread that cuts the byte stream into messages
// and writes what other threads send.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "api/error.h"
#include "api/ipc.h"

namespace quire::runner::engine {

class Link {
 public:
  // Takes the descriptor over and starts the I/O thread. `on_message` is called on it for every message, in
  // order. `on_end` is called once: with nothing when the daemon closed the link, with the reason when what
  // it sent does not parse or the socket failed.
  Link(int fd, std::function<void(api::ipc::ToRunner)> on_message,
       std::function<void(api::Result<void> reason)> on_end);
  ~Link();  // writes out what was sent, stops the thread and closes the socket
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Any thread; never blocks. What is queued is bounded by the credit of the requests under way.
  void Send(const api::ipc::ToDaemon& message);

 private:
  void Run();
  api::Result<bool> ReadSome();  // false at the end of the stream
  api::Result<void> WriteSome();
  bool HasOutput();

  int fd_;
  int wake_fd_;
  std::function<void(api::ipc::ToRunner)> on_message_;
  std::function<void(api::Result<void>)> on_end_;
  api::ipc::FrameReader reader_;  // I/O thread
  std::string writing_;           // I/O thread
  size_t written_ = 0;            // of writing_
  std::mutex mutex_;
  std::string queued_;  // guarded by mutex_
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace quire::runner::engine
