#include "scheduler/token_stream.h"

#include <boost/asio/error.hpp>
#include <boost/system/system_error.hpp>
#include <optional>
#include <utility>

namespace quire::scheduler {

RunnerTokenStream::RunnerTokenStream(std::weak_ptr<RequestCarrier> carrier, api::RequestId id,
                                     std::shared_ptr<EventStream> stream,
                                     std::chrono::nanoseconds load_duration)
    : carrier_(std::move(carrier)), id_(id), stream_(std::move(stream)), load_duration_(load_duration) {}

RunnerTokenStream::~RunnerTokenStream() {
  if (const auto carrier = carrier_.lock()) carrier->OnClientDisconnected(id_);
}

Awaitable<api::Event> RunnerTokenStream::Next() { return Receive(carrier_, id_, stream_); }

Awaitable<api::Event> RunnerTokenStream::Receive(std::weak_ptr<RequestCarrier> carrier, api::RequestId id,
                                                 std::shared_ptr<EventStream> stream) {
  while (true) {
    if (std::optional<api::Event> event = stream->events.Pop()) {
      const int32_t deltas = stream->events.PopCredit();
      if (const auto held = deltas > 0 ? carrier.lock() : nullptr) held->OnDeltasConsumed(id, deltas);
      co_return *std::move(event);
    }
    if (stream->events.ended()) {
      co_return api::Event(
          api::Failed{{api::ErrorCode::kInternal, "Next() was called after the end of the stream"}});
    }
    const bool waited = co_await stream->changed.Wait();
    // Before the next Pop(): an event given to a canceled coroutine would be lost.
    if (!waited) throw boost::system::system_error(boost::asio::error::operation_aborted);
  }
}

}  // namespace quire::scheduler
