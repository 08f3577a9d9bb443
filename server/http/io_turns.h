// Turns of the I/O thread for work that cannot run on another one and that many may ask for at once: requests
// that have come, pieces of large bodies, each of which is copied to memory that is new, and texts that take
// milliseconds to write. It would else make a round of the thread long, and everybody's request takes dozens
// of its rounds.
//
// Not work of the Executor (routes/executor.h): what it reads and writes is the I/O thread's.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "api/base/fair/fair_queue.h"
#include "server/http/awaitable.h"

namespace quire::server {

// I/O thread only; held by shared_ptr, also by who waits or has a turn. Parties share the turns by the time
// that they take.
class IoTurns : public std::enable_shared_from_this<IoTurns> {
 private:
  class Waiter;
  using Queue = fair::FairQueue<Waiter*>;

 public:
  struct Pace {
    int together = 1;  // turns in one round of the thread
    int pauses = 0;    // a round begins this many times as long after a turn as that took
  };
  // For texts that take milliseconds: they take a fifth of the thread's time.
  static constexpr Pace kText = {.together = 1, .pauses = 4};
  // Lasts until it is destroyed.
  class Turn {
   public:
    Turn() = default;
    Turn(std::shared_ptr<IoTurns> turns, Queue::Turn turn)
        : turns_(std::move(turns)), turn_(std::move(turn)), begin_(Clock::now()) {}
    Turn(Turn&& other) noexcept = default;
    Turn& operator=(Turn&& other) = delete;
    ~Turn() {
      if (turns_ != nullptr) turns_->End(turn_, Clock::now() - begin_);
    }
    explicit operator bool() const { return turns_ != nullptr; }

   private:
    std::shared_ptr<IoTurns> turns_;
    Queue::Turn turn_ = {};
    std::chrono::steady_clock::time_point begin_ = {};
  };

  explicit IoTurns(Pace pace) : pace_(pace), left_(pace.together) {}

  // No turn: the awaiting coroutine was canceled. `member`: of the party, whose members share its turns.
  Awaitable<Turn> Wait(fair::PartyId party, uint64_t member = 0);

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int64_t kQuantumNanoseconds = 1'000'000;

  void ArmNextRound(const boost::asio::any_io_executor& executor);
  void StartRound(const boost::asio::any_io_executor& executor);
  void CallWaiting();
  void End(const Queue::Turn& turn, Clock::duration time);

  const Pace pace_;
  Queue queue_{kQuantumNanoseconds};
  int left_;                     // turns of this round
  bool armed_ = false;           // the next round will begin
  Clock::time_point next_at_{};  // not before
};

}  // namespace quire::server
