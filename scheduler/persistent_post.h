// Hands results of another thread to the I/O thread, also when there is no memory at the moment.
#pragma once

#include <boost/asio/post.hpp>
#include <chrono>
#include <new>
#include <thread>

namespace quire::scheduler {

// Posts `work` to the executor and waits for memory as long as that takes: work that is lost would leave its
// request waiting. REQUIRES: copying `work` does not throw; the caller is not the I/O thread.
template <class Executor, class Work>
void PostPersistently(const Executor& executor, const Work& work) {
  constexpr std::chrono::milliseconds kPause(10);
  for (;;) {
    try {
      boost::asio::post(executor, work);
      return;
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(kPause);
    }
  }
}

}  // namespace quire::scheduler
