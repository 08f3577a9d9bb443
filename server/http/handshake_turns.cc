#include "server/http/handshake_turns.h"

#include <utility>

namespace quire::server {

// Gives the turn up at the end of a step, also of one that throws.
class HandshakeTurn::Lease {
 public:
  explicit Lease(HandshakeTurn& turn) : turn_(turn) {}
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease() { turn_.Release(); }

 private:
  HandshakeTurn& turn_;
};

void HandshakeTurns::Add(HandshakeTurn& turn) {
  waiting_.Add(turn.party_, turn);
  turn.state_ = HandshakeTurn::State::kWaiting;
  if (!busy_) GrantNext();
}

void HandshakeTurns::Remove(HandshakeTurn& turn) { waiting_.Remove(turn.party_, turn); }

void HandshakeTurns::GrantNext() {
  HandshakeTurn* next = waiting_.PopNext();
  busy_ = next != nullptr;
  if (!busy_) return;
  next->state_ = HandshakeTurn::State::kGranted;
  next->granted_.cancel();
}

HandshakeTurn::HandshakeTurn(HandshakeTurns& turns, const boost::asio::any_io_executor& executor,
                             std::string party)
    : turns_(turns),
      granted_(executor, std::chrono::steady_clock::time_point::max()),
      party_(std::move(party)) {}

Awaitable<bool> HandshakeTurn::Compute(const std::function<void()>& step) {
  const Lease lease(*this);
  co_await Wait();
  if (canceled_) co_return false;
  co_await turns_.compute_(step);
  co_return !canceled_;
}

Awaitable<void> HandshakeTurn::Wait() {
  if (canceled_) co_return;
  turns_.Add(*this);
  while (state_ == State::kWaiting) co_await granted_.async_wait(kTuple);
}

void HandshakeTurn::Release() {
  const State state = std::exchange(state_, State::kNone);
  if (state == State::kWaiting) turns_.Remove(*this);
  if (state == State::kGranted) turns_.GrantNext();
}

// A step that is being computed keeps the turn until it has ended.
void HandshakeTurn::Cancel() {
  canceled_ = true;
  if (state_ != State::kWaiting) return;
  Release();
  granted_.cancel();
}

}  // namespace quire::server
