#include "scheduler/job_slots.h"

#include <algorithm>

#include "scheduler/async_event.h"
#include "scheduler/backend.h"

namespace quire::scheduler {
namespace {

constexpr std::chrono::nanoseconds kQuantum = std::chrono::milliseconds(100);

uint64_t LimitOf(int32_t count) { return static_cast<uint64_t>(std::max(count, 1)); }

}  // namespace

// A job that waits, in its coroutine.
class JobSlots::Waiter {
 public:
  Waiter(JobSlots& slots, fair::PartyId party)
      : called(slots.executor_), place(slots.places_, std::move(party)), slots_(slots) {
    slots_.waiting_.push_back(this);
    slots_.queue_.Push(place.party(), 0, this);
  }
  ~Waiter() { Dequeue(); }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  // Its turn begins.
  void Give(Queue::Turn turn) {
    Dequeue();
    slot.emplace(slots_.shared_from_this(), std::move(turn));
    called.Notify();
  }
  void Refuse() {
    Dequeue();
    refused = true;
    called.Notify();
  }

  AsyncEvent called;
  fair::Quota::Lease place;
  std::optional<Slot> slot;
  bool refused = false;

 private:
  void Dequeue() {
    slots_.waiting_.remove(this);
    slots_.queue_.Remove(place.party(), 0, this);
    place.ShrinkTo(0);
  }

  JobSlots& slots_;
};

JobSlots::Slot::Slot(std::shared_ptr<JobSlots> slots, Queue::Turn turn)
    : slots_(std::move(slots)),
      turn_(std::move(turn)),
      lease_(slots_->slots_, turn_.party),
      since_(Clock::now()) {
  lease_.GrowTo(1);
}

JobSlots::JobSlots(boost::asio::any_io_executor executor, const Limits& limits)
    : executor_(std::move(executor)),
      queue_(kQuantum.count()),
      slots_({.total = LimitOf(limits.slots), .party = LimitOf(limits.slots_of_one)}),
      places_({.total = LimitOf(limits.waiting_max)}) {}

boost::asio::awaitable<api::Result<JobSlots::Slot>> JobSlots::Acquire(std::shared_ptr<JobSlots> slots,
                                                                      fair::PartyId party) {
  if (slots->closed_) co_return std::unexpected(*slots->closed_);
  Waiter waiter(*slots, std::move(party));
  slots->CallNext();
  if (!waiter.slot && !slots->FindPlace(waiter)) waiter.refused = true;
  while (!waiter.slot && !waiter.refused && !slots->closed_) {
    const bool waited = co_await waiter.called.Wait();
    if (!waited) co_return api::Fail(api::ErrorCode::kCancelled, "the client disconnected");
  }
  if (slots->closed_) co_return std::unexpected(*slots->closed_);
  if (waiter.refused) co_return api::Fail(api::ErrorCode::kOverloaded, kBusy);
  co_return *std::move(waiter.slot);
}

// A place to wait, perhaps that of the newest of a party that has more than its share.
bool JobSlots::FindPlace(Waiter& waiter) {
  while (const auto refusal = waiter.place.GrowTo(1)) {
    if (refusal->over == fair::PartyId()) return false;
    const auto newest = std::find_if(waiting_.rbegin(), waiting_.rend(), [&refusal](const Waiter* one) {
      return one->place.party() == refusal->over;
    });
    (*newest)->Refuse();
  }
  return true;
}

void JobSlots::End(Slot& slot) {
  slot.lease_.ShrinkTo(0);
  queue_.Charge(slot.turn_, std::chrono::nanoseconds(Clock::now() - slot.since_).count());
  CallNext();
}

void JobSlots::CallNext() {
  const auto may_go = [this](const fair::PartyId& party, uint64_t) {
    return !fair::Quota::Lease(slots_, party).RefusalFor(1);
  };
  while (auto next = queue_.Pop(may_go)) next->item->Give(std::move(next->turn));
}

void JobSlots::Close(api::Error why) {
  closed_ = std::move(why);
  for (Waiter* waiter : waiting_) waiter->called.Notify();
}

}  // namespace quire::scheduler
