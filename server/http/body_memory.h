// The memory of request bodies, or of answers that are collected before they are sent, shared by all
// connections. Any thread: a body that is parsed on a pool asks for the memory of its value there.
//
// Invariants
// - Bodies never hold more than BodyLimits::all.
// - Large bodies leave a quarter of it free, so that each connection may hold a small one.
// - The large bodies of one party leave others a share, and those of several parties leave the next one a
//   share.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "api/base/mutex.h"
#include "server/http/parser.h"

namespace quire::server {

struct BodyLimits {
  uint64_t all = 0;
  uint64_t small = 0;                   // a body of at most as many bytes is small
  uint64_t large = 0;                   // all large bodies together
  uint64_t party = 0;                   // those of one party
  const char* what = "request bodies";  // for messages
};

class BodyMemory {
 public:
  uint64_t held() const {
    const api::MutexLock lock(*mutex_);
    return held_;
  }

 private:
  friend class BodyMemoryLease;
  std::unique_ptr<api::Mutex> mutex_ =
      std::make_unique<api::Mutex>();  // what has it is moved before it is used
  uint64_t held_ GUARDED_BY(*mutex_) = 0;
  uint64_t large_ GUARDED_BY(*mutex_) = 0;
  std::map<std::string, uint64_t> parties_ GUARDED_BY(*mutex_);  // what their large bodies hold; no zeros
};

// What one request's body holds. Its owner is set before another thread uses it.
class BodyMemoryLease {
 public:
  // The memory outlives the lease.
  explicit BodyMemoryLease(BodyMemory& memory) : memory_(memory) {}
  BodyMemoryLease(const BodyMemoryLease&) = delete;
  BodyMemoryLease& operator=(const BodyMemoryLease&) = delete;
  ~BodyMemoryLease() { ShrinkTo(0); }

  // Whose the body is (PartyOf). REQUIRES: it holds nothing yet.
  void SetOwner(std::string party, const BodyLimits& limits) {
    party_ = std::move(party);
    limits_ = limits;
  }
  const BodyLimits& limits() const { return limits_; }
  // Why the body may not hold `bytes`: 503, or 429 for the share of its party.
  std::optional<ParseFailure> ReasonAgainst(uint64_t bytes) const;
  // A reason: it is as it was.
  std::optional<ParseFailure> GrowTo(uint64_t bytes);
  void ShrinkTo(uint64_t bytes);

 private:
  std::optional<ParseFailure> ReasonFor(uint64_t bytes) const REQUIRES(*memory_.mutex_);
  bool IsLarge(uint64_t bytes) const { return bytes > limits_.small; }
  bool LeavesRoom(uint64_t of_party, uint64_t of_others) const;
  void Set(uint64_t bytes) REQUIRES(*memory_.mutex_);

  BodyMemory& memory_;
  BodyLimits limits_;
  std::string party_;
  uint64_t leased_ GUARDED_BY(*memory_.mutex_) = 0;
};

}  // namespace quire::server
