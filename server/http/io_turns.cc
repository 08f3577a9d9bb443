#include "server/http/io_turns.h"

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <optional>

namespace quire::server {

namespace asio = boost::asio;

class IoTurns::Waiter {
 public:
  Waiter(std::shared_ptr<IoTurns> turns, fair::PartyId party, uint64_t member,
         const asio::any_io_executor& executor)
      : called(executor, asio::steady_timer::time_point::max()),
        turns_(std::move(turns)),
        party_(std::move(party)),
        member_(member) {
    turns_->queue_.Push(party_, member_, this);
  }
  ~Waiter() {
    if (turn_) {
      const Turn unused(turns_, *std::move(turn_));
    } else if (!was_called_) {
      turns_->queue_.Remove(party_, member_, this);
    }
  }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  void Call(Queue::Turn turn) {
    was_called_ = true;
    turn_ = std::move(turn);
    called.cancel();
  }
  bool was_called() const { return was_called_; }
  // REQUIRES: it was called.
  Turn MoveTurn() { return {turns_, *std::exchange(turn_, std::nullopt)}; }

  asio::steady_timer called;

 private:
  const std::shared_ptr<IoTurns> turns_;
  const fair::PartyId party_;
  const uint64_t member_;
  std::optional<Queue::Turn> turn_;
  bool was_called_ = false;
};

Awaitable<IoTurns::Turn> IoTurns::Wait(fair::PartyId party, uint64_t member) {
  const auto executor = co_await asio::this_coro::executor;
  Waiter waiter(shared_from_this(), std::move(party), member, executor);
  ArmNextRound(executor);
  CallWaiting();
  while (!waiter.was_called()) {
    co_await waiter.called.async_wait(kTuple);
    const asio::cancellation_state state = co_await asio::this_coro::cancellation_state;
    if (state.cancelled() != asio::cancellation_type::none) co_return Turn();
  }
  co_return waiter.MoveTurn();
}

// Behind all that is ready now.
void IoTurns::ArmNextRound(const asio::any_io_executor& executor) {
  if (armed_) return;
  const auto begin = [weak = weak_from_this(), executor] {
    if (const auto self = weak.lock()) self->StartRound(executor);
  };
  if (next_at_ <= Clock::now()) {
    asio::post(executor, begin);
  } else {
    const auto pause = std::make_shared<asio::steady_timer>(executor, next_at_);
    pause->async_wait([pause, begin](const boost::system::error_code&) { begin(); });
  }
  armed_ = true;
}

void IoTurns::StartRound(const asio::any_io_executor& executor) {
  armed_ = false;
  left_ = next_at_ <= Clock::now() ? pace_.together : 0;
  CallWaiting();
  if (left_ < pace_.together) ArmNextRound(executor);
}

void IoTurns::CallWaiting() {
  while (left_ > 0) {
    auto next = queue_.Pop();
    if (!next) return;
    --left_;
    next->item->Call(std::move(next->turn));
  }
}

void IoTurns::End(const Queue::Turn& turn, Clock::duration time) {
  queue_.Charge(turn, std::chrono::nanoseconds(time).count());
  if (pace_.pauses > 0) next_at_ = Clock::now() + pace_.pauses * time;
}

}  // namespace quire::server
