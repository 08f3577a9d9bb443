#include "server/http/body_turns.h"

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <utility>

namespace quire::server {

class BodyTurns::Waiter {
 public:
  Waiter(std::shared_ptr<BodyTurns> turns, std::string party, const boost::asio::any_io_executor& executor)
      : called(executor, boost::asio::steady_timer::time_point::max()),
        turns_(std::move(turns)),
        party_(std::move(party)) {
    turns_->waiting_.Add(party_, *this);
  }
  ~Waiter() {
    if (!was_called_) turns_->waiting_.Remove(party_, *this);
  }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  bool was_called() const { return was_called_; }
  void Call() {
    was_called_ = true;
    called.cancel();
  }

  boost::asio::steady_timer called;

 private:
  const std::shared_ptr<BodyTurns> turns_;
  const std::string party_;
  bool was_called_ = false;
};

Awaitable<bool> BodyTurns::Wait(std::string party) {
  namespace asio = boost::asio;
  const auto executor = co_await asio::this_coro::executor;
  ArmNextTurn(executor);
  if (left_ > 0) {
    --left_;
    co_return true;
  }
  Waiter waiter(shared_from_this(), std::move(party), executor);
  while (!waiter.was_called()) {
    co_await waiter.called.async_wait(kTuple);
    const asio::cancellation_state state = co_await asio::this_coro::cancellation_state;
    if (state.cancelled() != asio::cancellation_type::none) co_return false;
  }
  co_return true;
}

void BodyTurns::ArmNextTurn(const boost::asio::any_io_executor& executor) {
  if (armed_) return;
  boost::asio::post(executor, [weak = weak_from_this(), executor] {
    if (const auto self = weak.lock()) self->CallNext(executor);
  });
  armed_ = true;
}

void BodyTurns::CallNext(const boost::asio::any_io_executor& executor) {
  armed_ = false;
  for (left_ = kPiecesTogether; left_ > 0; --left_) {
    Waiter* next = waiting_.PopNext();
    if (next == nullptr) break;
    next->Call();
  }
  if (left_ < kPiecesTogether) ArmNextTurn(executor);
}

}  // namespace quire::server
