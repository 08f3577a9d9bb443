#include "scheduler/job_slots.h"

#include <algorithm>

#include "scheduler/scheduler.h"

namespace quire::scheduler {

// A job that waits; gives back what it was given and has not passed on when its coroutine ends.
class JobSlots::Waiter {
 public:
  Waiter(std::shared_ptr<JobSlots> slots, fair::PartyId party) noexcept
      : called(slots->executor_), slots_(std::move(slots)), party_(std::move(party)) {
    ++slots_->Enter(party_).waiting;
    slots_->places_.Add({}, party_.name());
    slots_->waiting_.push_back(this);
  }
  ~Waiter() {
    if (!has_slot_) {
      Dequeue();
      slots_->EraseIfIdle(party_);
    } else if (!moved_) {
      slots_->Free(party_);
    }
  }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  const fair::PartyId& party() const { return party_; }
  bool has_slot() const { return has_slot_; }
  void Give(Party& party) {
    Dequeue();
    slots_->Start(party);
    has_slot_ = true;
    called.Notify();
  }
  Slot MoveSlot() {
    moved_ = true;
    return Slot(slots_, party_);
  }

  AsyncEvent called;

 private:
  void Dequeue() {
    std::erase(slots_->waiting_, this);
    slots_->places_.Remove({}, party_.name());
    --slots_->parties_.at(party_).waiting;
  }

  const std::shared_ptr<JobSlots> slots_;
  const fair::PartyId party_;
  bool has_slot_ = false;
  bool moved_ = false;
};

JobSlots::JobSlots(boost::asio::any_io_executor executor, Limits limits)
    : executor_(std::move(executor)), limits_(limits), places_(limits.waiting_max, 0) {}

boost::asio::awaitable<api::Result<JobSlots::Slot>> JobSlots::Acquire(std::shared_ptr<JobSlots> slots,
                                                                      fair::PartyId party) {
  if (slots->closed_) co_return std::unexpected(*slots->closed_);
  const auto known = slots->parties_.find(party);
  // What waits, though a slot is free, is of parties that have all that one may have.
  if (slots->MayStart(known == slots->parties_.end() ? Party() : known->second)) {
    slots->Start(slots->Enter(party));
    co_return Slot(std::move(slots), std::move(party));
  }
  if (!slots->places_.HasRoom(party.name()))
    co_return api::Fail(api::ErrorCode::kOverloaded, Scheduler::kBusy);
  Waiter waiter(slots, std::move(party));
  while (!waiter.has_slot() && !slots->closed_) {
    const bool waited = co_await waiter.called.Wait();
    if (!waited) co_return api::Fail(api::ErrorCode::kCancelled, "the client disconnected");
  }
  if (slots->closed_) co_return std::unexpected(*slots->closed_);
  co_return waiter.MoveSlot();
}

JobSlots::Party& JobSlots::Enter(const fair::PartyId& party) {
  const auto [found, is_new] = parties_.try_emplace(party);
  if (is_new) found->second.turn = ++turns_;
  return found->second;
}

void JobSlots::Start(Party& party) {
  ++running_;
  ++party.jobs;
  party.turn = ++turns_;
}

void JobSlots::Free(const fair::PartyId& party) {
  --running_;
  --parties_.at(party).jobs;
  EraseIfIdle(party);
  CallNext();
}

void JobSlots::EraseIfIdle(const fair::PartyId& party) {
  const auto found = parties_.find(party);
  if (found->second.jobs == 0 && found->second.waiting == 0) parties_.erase(found);
}

void JobSlots::CallNext() {
  while (true) {
    Waiter* next = nullptr;
    std::pair<int32_t, uint64_t> first;  // jobs of its party, its turn
    for (Waiter* waiter : waiting_) {
      const Party& party = parties_.at(waiter->party());
      if (!MayStart(party)) continue;
      const std::pair order(party.jobs, party.turn);
      if (next != nullptr && first <= order) continue;
      next = waiter;
      first = order;
    }
    if (next == nullptr) return;
    next->Give(parties_.at(next->party()));
  }
}

void JobSlots::Close(api::Error why) {
  closed_ = std::move(why);
  for (Waiter* waiter : waiting_) waiter->called.Notify();
}

}  // namespace quire::scheduler
