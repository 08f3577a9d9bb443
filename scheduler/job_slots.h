// Slots for one-off jobs: parties share the time for which they hold one, and the places to wait for one.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <utility>

#include "api/base/error.h"
#include "api/base/fair/fair_queue.h"
#include "api/base/fair/party.h"
#include "api/base/fair/quota.h"
#include "scheduler/clock.h"

namespace quire::scheduler {

// I/O thread only; held by shared_ptr, also by who has a slot or waits. Jobs of one party start in the order
// in which they came.
class JobSlots : public std::enable_shared_from_this<JobSlots> {
  class Waiter;
  using Queue = fair::FairQueue<Waiter*>;

 public:
  // For what something else bounds, such as the number of connections.
  static constexpr int32_t kNoLimit = 1 << 20;
  struct Limits {
    int32_t slots = 1;
    int32_t slots_of_one = 1;  // of one party, so that a job of another one finds a slot
    int32_t waiting_max = 1;   // jobs
  };
  // Free again when destroyed.
  class Slot {
   public:
    Slot(std::shared_ptr<JobSlots> slots, Queue::Turn turn);
    Slot(Slot&& other) noexcept = default;
    Slot& operator=(Slot&&) = delete;
    ~Slot() {
      if (slots_ != nullptr) slots_->End(*this);
    }

   private:
    friend class JobSlots;
    std::shared_ptr<JobSlots> slots_;
    Queue::Turn turn_;
    fair::Quota::Lease lease_;
    std::chrono::steady_clock::time_point since_;
  };

  JobSlots(boost::asio::any_io_executor executor, const Limits& limits);
  JobSlots(const JobSlots&) = delete;
  JobSlots& operator=(const JobSlots&) = delete;

  // Waits for a slot. kOverloaded: as many wait as may, and the party has its share of them; or it had more,
  // and another one came. kCancelled: the awaiting coroutine was canceled.
  static boost::asio::awaitable<api::Result<Slot>> Acquire(std::shared_ptr<JobSlots> slots,
                                                           fair::PartyId party);
  // Who waits, and who comes from now on, gets this error.
  void Close(api::Error why);

  int32_t running() const { return static_cast<int32_t>(slots_.held()); }

 private:
  bool FindPlace(Waiter& waiter);
  void End(Slot& slot);
  void CallNext();

  const boost::asio::any_io_executor executor_;
  Queue queue_;
  fair::Quota slots_, places_;
  std::list<Waiter*> waiting_;  // oldest first
  std::optional<api::Error> closed_;
};

}  // namespace quire::scheduler
