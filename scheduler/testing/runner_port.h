// The end of a link that a simulated runner has. A program links one of two definitions: frame_port.cc has
// frames, sockets and the scheduler's RunnerLink; message_port.cc passes messages, and defines RunnerLink,
// too.
#pragma once

#include <boost/asio/local/stream_protocol.hpp>
#include <memory>
#include <vector>

#include "api/ipc/messages.h"

namespace quire::scheduler::simulation {

// One thread.
class RunnerPort {
 public:
  // `daemon` becomes the other end, of the RunnerLink that is made next.
  explicit RunnerPort(boost::asio::local::stream_protocol::socket& daemon);
  ~RunnerPort();
  RunnerPort(const RunnerPort&) = delete;
  RunnerPort& operator=(const RunnerPort&) = delete;

  // They arrive together. Nothing happens once either end is closed.
  void Send(std::vector<api::ipc::ToDaemon> messages);
  void SendGarbage();
  struct Received {
    std::vector<api::ipc::ToRunner> messages = {};
    bool closed = false;  // by the daemon; then there are no messages
  };
  // What came since the last call. REQUIRES: open.
  Received Receive();
  void Close();
  bool open() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::scheduler::simulation
