// A ZeroMQ socket that publishes (XPUB). libzmq is loaded when the first one is made: no package and no start of the daemon
// needs it. One thread.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "api/base/error.h"

namespace quire::server {

class EventSocket {
 public:
  // `endpoint`: "tcp://127.0.0.1:5557", "tcp://*:5557", "ipc:///run/quire/events"; port * takes a free one. kUnavailable:
  // there is no libzmq.so.5, or the address cannot be used.
  static api::Result<std::unique_ptr<EventSocket>> Bind(const std::string& endpoint);
  ~EventSocket();
  EventSocket(const EventSocket&) = delete;
  EventSocket& operator=(const EventSocket&) = delete;

  // With the port that was taken.
  std::string endpoint() const;
  // Until a subscriber comes or goes, the descriptor can be read, or this time is over.
  void Wait(int descriptor, std::chrono::milliseconds at_most);
  // Whether one came since the last call. Does not wait.
  bool PopSubscriptions();
  // To all subscribers of topics that this one begins with. A subscriber that reads too slowly misses messages.
  void Publish(std::string_view topic, std::string_view sequence, std::string_view payload);

 private:
  struct Library;
  EventSocket(const Library& library, void* context, void* socket)
      : library_(library), context_(context), socket_(socket) {}
  // Null: it cannot be loaded.
  static const Library* Load();

  const Library& library_;
  void* const context_;
  void* const socket_;
};

}  // namespace quire::server
