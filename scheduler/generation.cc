#include "scheduler/generation.h"

#include <boost/asio/error.hpp>
#include <boost/system/system_error.hpp>
#include <optional>
#include <utility>

namespace quire::scheduler {

RunnerGeneration::RunnerGeneration(std::weak_ptr<RequestCarrier> carrier, api::RequestId id,
                                   std::shared_ptr<EventStream> stream,
                                   std::chrono::nanoseconds load_duration)
    : carrier_(std::move(carrier)), id_(id), stream_(std::move(stream)), load_duration_(load_duration) {}

RunnerGeneration::~RunnerGeneration() {
  if (const auto carrier = carrier_.lock()) carrier->OnClientLeft(id_);
}

Awaitable<api::Event> RunnerGeneration::Next() { return Take(carrier_, id_, stream_); }

Awaitable<api::Event> RunnerGeneration::Take(std::weak_ptr<RequestCarrier> carrier, api::RequestId id,
                                             std::shared_ptr<EventStream> stream) {
  while (true) {
    if (std::optional<api::Event> event = stream->events.Pop()) {
      const int32_t deltas = stream->events.TakeCredit();
      if (const auto held = deltas > 0 ? carrier.lock() : nullptr) held->OnDeltasTaken(id, deltas);
      co_return *std::move(event);
    }
    if (stream->events.ended()) {
      co_return api::Event(api::Failed{{api::ErrorCode::kInternal, "an event was awaited after the last"}});
    }
    const bool waited = co_await stream->changed.Wait();
    // Before the next Pop(): an event given to a cancelled coroutine would be lost.
    if (!waited) throw boost::system::system_error(boost::asio::error::operation_aborted);
  }
}

}  // namespace quire::scheduler
