// Which TLS handshake is computed next. A step of a handshake may sign or decrypt with the private key, for
// milliseconds, and anybody who can connect can ask for thousands. One step is computed at a time, and
// parties (party.h) take turns, however many handshakes each has. I/O thread only.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <string>

#include "server/http/awaitable.h"
#include "server/http/party_rotation.h"

namespace quire::server {

class HandshakeTurn;

// Computes a step where it keeps no client waiting, which is on another thread, and ends when that is done.
// The step stays where it is until then.
using ComputeStep = std::function<Awaitable<void>(const std::function<void()>& step)>;

class HandshakeTurns {
 public:
  // Outlives its turns.
  explicit HandshakeTurns(ComputeStep compute) : compute_(std::move(compute)) {}
  HandshakeTurns(const HandshakeTurns&) = delete;
  HandshakeTurns& operator=(const HandshakeTurns&) = delete;

 private:
  friend class HandshakeTurn;

  void Add(HandshakeTurn& turn);
  void Remove(HandshakeTurn& turn);
  void GrantNext();

  ComputeStep compute_;
  PartyRotation<HandshakeTurn> waiting_;
  bool busy_ = false;  // somebody has the turn
};

// One handshake's.
class HandshakeTurn {
 public:
  HandshakeTurn(HandshakeTurns& turns, const boost::asio::any_io_executor& executor, std::string party);
  HandshakeTurn(const HandshakeTurn&) = delete;
  HandshakeTurn& operator=(const HandshakeTurn&) = delete;
  ~HandshakeTurn() { Release(); }

  // Computes the step in its turn. False: canceled; a step that had begun has ended. One at a time.
  Awaitable<bool> Compute(const std::function<void()>& step);
  // Now and for all later steps.
  void Cancel();
  bool canceled() const { return canceled_; }

 private:
  friend class HandshakeTurns;
  enum class State { kNone, kWaiting, kGranted };
  class Lease;

  Awaitable<void> Wait();
  void Release();

  HandshakeTurns& turns_;
  boost::asio::steady_timer granted_;  // ends when the state changes
  std::string party_;
  State state_ = State::kNone;
  bool canceled_ = false;
};

}  // namespace quire::server
