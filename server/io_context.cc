#include "server/io_context.h"

#include <boost/asio/steady_timer.hpp>
#include <vector>

#include "scheduler/clock.h"

namespace quire::server {
namespace {

// The queue keeps the memory of the most timers that it ever had.
template <class Timer>
void WaitAtOnce(boost::asio::io_context& io, size_t count) {
  std::vector<Timer> timers;
  timers.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    timers.emplace_back(io, Timer::time_point::max());
    timers.back().async_wait([](const boost::system::error_code&) {});
  }
}

}  // namespace

IoContext::IoContext() : boost::asio::io_context(1) {
  WaitAtOnce<boost::asio::steady_timer>(*this, kTimers);
  WaitAtOnce<scheduler::Timer>(*this, kTimers);
  poll();  // the canceled waits end
  restart();
}

}  // namespace quire::server
