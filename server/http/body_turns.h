// Pieces of bodies in turns. Each is copied to memory that is new: hundreds of large bodies that come at once
// would else make a turn of the I/O thread long, and everybody's request takes dozens of its turns.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "server/http/awaitable.h"
#include "server/http/party_rotation.h"

namespace quire::server {

// I/O thread only; held by shared_ptr, also by who waits. Parties (party.h) take turns, however many bodies
// each sends.
class BodyTurns : public std::enable_shared_from_this<BodyTurns> {
 public:
  static constexpr uint64_t kSmallBodyBytes = uint64_t{64} << 10;  // a body that has no more needs no turn
  static constexpr size_t kSmallPieceBytes = size_t{1} << 10;      // nor does such a piece of one that has
  static constexpr int kPiecesTogether = 4;                        // in one turn of the thread

  // Until a piece of about 16 KiB, which has come, may be copied. False: the awaiting coroutine was canceled.
  Awaitable<bool> Wait(std::string party);

 private:
  class Waiter;

  void ArmNextTurn(const boost::asio::any_io_executor& executor);
  void CallNext(const boost::asio::any_io_executor& executor);

  PartyRotation<Waiter> waiting_;
  int left_ = kPiecesTogether;  // in this turn
  bool armed_ = false;          // the next turn will begin
};

}  // namespace quire::server
