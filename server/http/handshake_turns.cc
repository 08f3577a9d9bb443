#include "server/http/handshake_turns.h"

#include <algorithm>
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
  auto party = std::ranges::find(parties_, turn.party_, &Party::name);
  if (party == parties_.end()) party = parties_.insert(parties_.end(), {.name = turn.party_});
  party->waiting.push_back(&turn);
  turn.state_ = HandshakeTurn::State::kWaiting;
  if (!busy_) GrantNext();
}

void HandshakeTurns::Remove(HandshakeTurn& turn) {
  const auto party = std::ranges::find(parties_, turn.party_, &Party::name);
  std::erase(party->waiting, &turn);
  if (party->waiting.empty()) parties_.erase(party);
}

// A party that had its turn goes behind all others.
void HandshakeTurns::GrantNext() {
  busy_ = false;
  std::erase_if(parties_,
                [](const Party& party) { return party.waiting.empty(); });  // there was no memory for one
  if (parties_.empty()) return;
  Party& party = parties_.front();
  HandshakeTurn& turn = *party.waiting.front();
  party.waiting.pop_front();
  parties_.splice(parties_.end(), parties_, parties_.begin());
  if (party.waiting.empty()) parties_.pop_back();
  busy_ = true;
  turn.state_ = HandshakeTurn::State::kGranted;
  turn.granted_.cancel();
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
