// Which connection a new one replaces when there is no place left. A pure function of state. A fair::Quota
// says only whose connections are too many: which of them is closed depends on what that costs its client,
// and one that costs nobody anything goes first, whoever has it.
//
// Connections that wait for nothing come first: closing ones, then those that have sent no request for a
// while. To close any other costs its client something. Of these the party with the most connections pays: a
// client that takes all places replaces its own, and never those of a smaller one. Of one party, a client
// that has just connected has not had the time to say what it wants: it gives its place after those that keep
// a connection only in case they need it again. Busy ones go last, and only those of a party that would still
// have more than the one that asks.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace quire::server {

// A whole answer must be taken at the minimum rate; the reader of a stream may be slow.
enum class AnswerKind : uint8_t { kWhole, kStream };

// A write that waits for the client.
struct WaitingWrite {
  AnswerKind kind = AnswerKind::kWhole;
  // How far the client is behind the minimum rate, or, of a stream, for how long it has taken nothing.
  std::chrono::nanoseconds lag{};
};

struct Idleness {
  enum class Stage : uint8_t {
    kClosing,          // has had its last answer
    kBeforeRequest,    // has sent no request yet, or shakes hands
    kUnreadAnswer,     // does not read a whole answer
    kBetweenRequests,  // kept alive
    kUnreadStream,     // has taken nothing of a stream for long
    kBusy,             // none of these: a request is read, worked on or answered
  };
  Stage stage = Stage::kBeforeRequest;
  std::chrono::steady_clock::time_point since;
  size_t party_connections = 1;  // all of the same party
};

// A connection younger than this is fresh. A client that is as far behind a minimum rate counts as silent.
inline constexpr std::chrono::seconds kFreshTime{2};
// The kernel reports some 8 KiB at once as taken: a reader that is slower than that in this time counts as
// silent.
inline constexpr std::chrono::seconds kUnreadStreamTime{10};

// Nothing: the client reads.
std::optional<Idleness::Stage> StageOfUnread(const WaitingWrite& write);

// Whether a new connection of a party that has `party_connections` without it may replace this one.
bool MayReplace(size_t party_connections, const Idleness& idle, std::chrono::steady_clock::time_point now);

// In this order: closing; not fresh without a request; all others. In each group those of the party with the
// most connections, and of one party: unread answers, not fresh between requests, fresh without a request,
// fresh between requests, unread streams. Of two alike the older one.
bool ReplacedBefore(const Idleness& one, const Idleness& other, std::chrono::steady_clock::time_point now);

}  // namespace quire::server
