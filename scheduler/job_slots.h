// Slots for one-off jobs, which parties take in turns: one that asks for many jobs holds up nobody else's.
//
// Not a fair queue, which charges what was used: a slot is held while its job runs, so that who holds the
// fewest is next.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "api/base/error.h"
#include "api/base/fair/party.h"
#include "scheduler/async_event.h"
#include "scheduler/queue_places.h"

namespace quire::scheduler {

// I/O thread only; held by shared_ptr, also by who has a slot or waits. A free slot goes to the party with
// the fewest jobs, of parties alike to the one that waits longest since its last; jobs of one party start in
// the order in which they came. Parties are those of QueuePlaces.
class JobSlots {
 public:
  // For what something else bounds, such as the number of connections.
  static constexpr int32_t kNoLimit = 1 << 20;
  struct Limits {
    int32_t slots = 1;
    int32_t slots_of_one = 1;  // of one party, so that a job of another one finds a slot
    int32_t waiting_max = 1;   // jobs, and a few more of parties that have few (QueuePlaces)
  };
  // Free again when destroyed.
  class Slot {
   public:
    Slot(std::shared_ptr<JobSlots> slots, fair::PartyId party)
        : slots_(std::move(slots)), party_(std::move(party)) {}
    Slot(Slot&& other) noexcept = default;
    Slot& operator=(Slot&&) = delete;
    ~Slot() {
      if (slots_ != nullptr) slots_->Free(party_);
    }

   private:
    std::shared_ptr<JobSlots> slots_;
    fair::PartyId party_;
  };

  JobSlots(boost::asio::any_io_executor executor, Limits limits);
  JobSlots(const JobSlots&) = delete;
  JobSlots& operator=(const JobSlots&) = delete;

  // Waits for a slot. kOverloaded: too many wait. kCancelled: the awaiting coroutine was canceled.
  static boost::asio::awaitable<api::Result<Slot>> Acquire(std::shared_ptr<JobSlots> slots,
                                                           fair::PartyId party);
  // Who waits, and who comes from now on, gets this error.
  void Close(api::Error why);

  int32_t running() const { return running_; }

 private:
  struct Party {
    int32_t jobs = 0;  // that have a slot
    int32_t waiting = 0;
    uint64_t turn = 0;  // when it had its last, or came
  };
  class Waiter;

  bool MayStart(const Party& party) const {
    return running_ < limits_.slots && party.jobs < limits_.slots_of_one;
  }
  Party& Enter(const fair::PartyId& party);
  void Start(Party& party);
  void Free(const fair::PartyId& party);
  void EraseIfIdle(const fair::PartyId& party);
  void CallNext();

  const boost::asio::any_io_executor executor_;
  const Limits limits_;
  std::map<fair::PartyId, Party> parties_;  // with jobs that have a slot or wait
  std::list<Waiter*> waiting_;              // oldest first
  QueuePlaces places_;                      // of jobs that wait
  int32_t running_ = 0;
  uint64_t turns_ = 0;
  std::optional<api::Error> closed_;
};

}  // namespace quire::scheduler
