#include "scheduler/async_event.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

namespace quire::scheduler {
namespace {

// Keeps a timer in a list of waiters for the length of a wait, also when the coroutine is destroyed in it.
class Listed {
 public:
  Listed(std::list<Timer*>& list, Timer& timer) : list_(list), place_(list.insert(list.end(), &timer)) {}
  ~Listed() { list_.erase(place_); }
  Listed(const Listed&) = delete;
  Listed& operator=(const Listed&) = delete;

 private:
  std::list<Timer*>& list_;
  std::list<Timer*>::iterator place_;
};

}  // namespace

AsyncEvent::AsyncEvent(boost::asio::any_io_executor executor) : executor_(std::move(executor)) {}

boost::asio::awaitable<bool> AsyncEvent::Wait(Time until) {
  Timer timer(executor_, until);
  const Listed listed(waiters_, timer);
  co_await timer.async_wait(boost::asio::as_tuple(boost::asio::use_awaitable));
  const auto state = co_await boost::asio::this_coro::cancellation_state;
  co_return state.cancelled() == boost::asio::cancellation_type::none;
}

void AsyncEvent::Notify() {
  for (Timer* timer : waiters_) timer->cancel();
}

}  // namespace quire::scheduler
