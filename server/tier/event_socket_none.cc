// Where zmq.h was missing when this was built.
#include "server/tier/event_socket.h"

namespace quire::server {

struct EventSocket::Library {};

const EventSocket::Library* EventSocket::Load() { return nullptr; }

api::Result<std::unique_ptr<EventSocket>> EventSocket::Bind(const std::string& /*endpoint*/) {
  return api::Fail(api::ErrorCode::kUnavailable, "built without ZeroMQ's header (Debian: libzmq3-dev)");
}

EventSocket::~EventSocket() {}
std::string EventSocket::endpoint() const { return {}; }
void EventSocket::Wait(int /*descriptor*/, std::chrono::milliseconds /*at_most*/) {}
bool EventSocket::PopSubscriptions() { return false; }
void EventSocket::Publish(std::string_view /*topic*/, std::string_view /*sequence*/,
                          std::string_view /*payload*/) {}

}  // namespace quire::server
