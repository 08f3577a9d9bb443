// The clock of the scheduler and of its timers: the steady clock. A simulation links another definition of
// now().
#pragma once

#include <boost/asio/basic_waitable_timer.hpp>
#include <chrono>

namespace quire::scheduler {

struct Clock {
  using duration = std::chrono::steady_clock::duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::steady_clock::time_point;
  static constexpr bool is_steady = true;
  static time_point now();
};

using Timer = boost::asio::basic_waitable_timer<Clock>;

}  // namespace quire::scheduler
