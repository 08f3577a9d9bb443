#include "scheduler/generation.h"

#include <boost/asio/error.hpp>
#include <boost/system/system_error.hpp>
#include <optional>
#include <utility>

namespace quire::scheduler {

RunnerGeneration::RunnerGeneration(std::shared_ptr<ModelRunner> runner, api::RequestId id,
                                   std::shared_ptr<EventStream> stream,
                                   std::chrono::nanoseconds load_duration)
    : runner_(std::move(runner)), id_(id), stream_(std::move(stream)), load_duration_(load_duration) {}

RunnerGeneration::~RunnerGeneration() { runner_->Cancel(id_); }

Awaitable<api::Event> RunnerGeneration::Next() { return Take(runner_, id_, stream_); }

Awaitable<api::Event> RunnerGeneration::Take(std::shared_ptr<ModelRunner> runner, api::RequestId id,
                                             std::shared_ptr<EventStream> stream) {
  while (true) {
    if (std::optional<api::Event> event = stream->events.Pop()) {
      if (const int32_t deltas = stream->events.TakeCredit(); deltas > 0) runner->GiveCredit(id, deltas);
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
