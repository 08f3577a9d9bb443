#include "scheduler/clock.h"

namespace quire::scheduler {

Clock::time_point Clock::now() { return std::chrono::steady_clock::now(); }

}  // namespace quire::scheduler
