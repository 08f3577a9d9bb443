#include "server/tier/event_socket.h"

#include <dlfcn.h>
#include <zmq.h>

#include <array>
#include <optional>
#include <type_traits>

namespace quire::server {

// The functions of libzmq.so.5 by their declarations in zmq.h.
struct EventSocket::Library {
  decltype(&::zmq_ctx_new) ctx_new = nullptr;
  decltype(&::zmq_ctx_term) ctx_term = nullptr;
  decltype(&::zmq_socket) socket = nullptr;
  decltype(&::zmq_close) close = nullptr;
  decltype(&::zmq_setsockopt) setsockopt = nullptr;
  decltype(&::zmq_getsockopt) getsockopt = nullptr;
  decltype(&::zmq_bind) bind = nullptr;
  decltype(&::zmq_send) send = nullptr;
  decltype(&::zmq_recv) recv = nullptr;
  decltype(&::zmq_poll) poll = nullptr;
  decltype(&::zmq_errno) error = nullptr;
  decltype(&::zmq_strerror) strerror = nullptr;
};

const EventSocket::Library* EventSocket::Load() {
  static const std::optional<Library> library = []() -> std::optional<Library> {
    void* const file = ::dlopen("libzmq.so.5", RTLD_NOW | RTLD_LOCAL);
    if (file == nullptr) return std::nullopt;
    bool whole = true;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(file, name));
      whole = whole && function != nullptr;
    };
    Library found;
    find(found.ctx_new, "zmq_ctx_new");
    find(found.ctx_term, "zmq_ctx_term");
    find(found.socket, "zmq_socket");
    find(found.close, "zmq_close");
    find(found.setsockopt, "zmq_setsockopt");
    find(found.getsockopt, "zmq_getsockopt");
    find(found.bind, "zmq_bind");
    find(found.send, "zmq_send");
    find(found.recv, "zmq_recv");
    find(found.poll, "zmq_poll");
    find(found.error, "zmq_errno");
    find(found.strerror, "zmq_strerror");
    return whole ? std::optional(found) : std::nullopt;
  }();
  return library ? &*library : nullptr;
}

api::Result<std::unique_ptr<EventSocket>> EventSocket::Bind(const std::string& endpoint) {
  const Library* library = Load();
  if (library == nullptr)
    return api::Fail(api::ErrorCode::kUnavailable, "libzmq.so.5 is not installed (Debian: libzmq5)");
  void* const context = library->ctx_new();
  void* const socket = context == nullptr ? nullptr : library->socket(context, ZMQ_XPUB);
  if (socket == nullptr) {
    if (context != nullptr) library->ctx_term(context);
    return api::Fail(api::ErrorCode::kUnavailable, library->strerror(library->error()));
  }
  std::unique_ptr<EventSocket> made(new EventSocket(*library, context, socket));
  const auto set = [&](int option, int value) { library->setsockopt(socket, option, &value, sizeof(value)); };
  set(ZMQ_LINGER, 0);
  set(ZMQ_SNDHWM, 10'000);
  // What a subscriber sends is a topic. A connection that states more ends.
  const int64_t message_bytes_max = 4096;
  library->setsockopt(socket, ZMQ_MAXMSGSIZE, &message_bytes_max, sizeof(message_bytes_max));
  set(ZMQ_XPUB_VERBOSE, 1);  // a second subscriber of a topic is seen, too
  set(ZMQ_IPV6, endpoint.find('[') == std::string::npos ? 0 : 1);
  if (library->bind(socket, endpoint.c_str()) != 0)
    return api::Fail(api::ErrorCode::kUnavailable, library->strerror(library->error()));
  return made;
}

EventSocket::~EventSocket() {
  library_.close(socket_);
  library_.ctx_term(context_);
}

std::string EventSocket::endpoint() const {
  std::array<char, 256> text{};
  size_t size = text.size();
  if (library_.getsockopt(socket_, ZMQ_LAST_ENDPOINT, text.data(), &size) != 0) return {};
  return text.data();
}

void EventSocket::Wait(int descriptor, std::chrono::milliseconds at_most) {
  std::array<zmq_pollitem_t, 2> items{{{socket_, 0, ZMQ_POLLIN, 0}, {nullptr, descriptor, ZMQ_POLLIN, 0}}};
  library_.poll(items.data(), static_cast<int>(items.size()), static_cast<long>(at_most.count()));
}

bool EventSocket::PopSubscriptions() {
  bool came = false;
  std::array<char, 256> message;
  // Its first byte: 1 for a subscription, 0 for the end of one. The topic follows.
  while (library_.recv(socket_, message.data(), message.size(), ZMQ_DONTWAIT) > 0)
    came = came || message.front() == 1;
  return came;
}

void EventSocket::Publish(std::string_view topic, std::string_view sequence, std::string_view payload) {
  library_.send(socket_, topic.data(), topic.size(), ZMQ_SNDMORE);
  library_.send(socket_, sequence.data(), sequence.size(), ZMQ_SNDMORE);
  library_.send(socket_, payload.data(), payload.size(), 0);
}

}  // namespace quire::server
