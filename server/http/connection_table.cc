#include "server/http/connection_table.h"

#include <algorithm>

#include "server/http/party.h"

namespace quire::server {
namespace {

constexpr size_t kReservedPlaces = 8;   // beyond the limit of connections
constexpr size_t kHandshakesMax = 512;  // at once; each holds about 100 KiB

// Those that are to be replaced are listed for some time, as a flood of new ones would look at all for each.
constexpr auto kListedFor = std::chrono::milliseconds(5);
constexpr size_t kListed = 64;

// What a party may have given up since it had as many connections.
bool IsAbout(size_t before, size_t now) { return now + before / 16 >= before; }

}  // namespace

void ConnectionTable::Remove(SessionEntry entry) {
  std::erase_if(replaceable_, [&](const Replaceable& one) { return one.session == *entry; });
  std::erase(busy_, *entry);
  sessions_.erase(entry);
}

void ConnectionTable::Remove(HandshakeEntry entry) {
  std::erase_if(replaceable_, [&](const Replaceable& one) { return one.handshake == &*entry; });
  handshakes_.erase(entry);
}

// Which connections may be replaced next, the best last: those that are about like the first one, so that
// none that comes meanwhile goes before them.
void ConnectionTable::ListReplaceable(Place place, std::chrono::steady_clock::time_point now) {
  replaceable_.clear();
  replaceable_place_ = place;
  listed_at_ = now;
  for (Handshake& candidate : handshakes_) {
    if (candidate.place != place) continue;
    if (const auto idleness = IdlenessOf(candidate)) replaceable_.push_back({nullptr, &candidate, *idleness});
  }
  for (Session* candidate : sessions_) {
    if (candidate->place() != place) continue;
    const auto idleness = candidate->IdlenessAt(now);
    if (idleness && idleness->stage != Idleness::Stage::kBusy)
      replaceable_.push_back({candidate, nullptr, *idleness});
  }
  const auto first = [now](const Replaceable& one, const Replaceable& other) {
    return ReplacedBefore(one.idleness, other.idleness, now);
  };
  const size_t listed = std::min(kListed, replaceable_.size());
  std::ranges::partial_sort(replaceable_, replaceable_.begin() + static_cast<std::ptrdiff_t>(listed), first);
  replaceable_.resize(listed);
  const auto other = std::ranges::find_if_not(replaceable_, [this](const Replaceable& one) {
    const Idleness& best = replaceable_.front().idleness;
    return one.idleness.stage == best.stage &&
           IsAbout(best.party_connections, one.idleness.party_connections);
  });
  replaceable_.erase(other, replaceable_.end());
  std::ranges::reverse(replaceable_);
  listed_none_ = replaceable_.empty();
}

std::optional<Idleness> ConnectionTable::IdlenessOf(const Handshake& handshake) {
  if (handshake.connection->gone()) return std::nullopt;
  return Idleness{Idleness::Stage::kBeforeRequest, handshake.since,
                  handshake.connection->party_connections()};
}

bool ConnectionTable::CloseOldest(Place place, size_t party_connections) {
  const auto now = std::chrono::steady_clock::now();
  bool is_new = false;
  const auto list = [&] {
    ListReplaceable(place, now);
    is_new = true;
  };
  if (now - listed_at_ > kListedFor || place != replaceable_place_) list();
  while (true) {
    if (replaceable_.empty()) {
      if (is_new || listed_none_) return false;
      list();
      continue;
    }
    const Replaceable one = replaceable_.back();
    const auto idleness = one.session != nullptr ? one.session->IdlenessAt(now) : IdlenessOf(*one.handshake);
    // Where its party has given up others meanwhile one with more may be next, and so may that of the new
    // one.
    const bool is_next = idleness && idleness->stage != Idleness::Stage::kBusy &&
                         IsAbout(one.idleness.party_connections, idleness->party_connections);
    if (!is_next) {
      replaceable_.pop_back();
      continue;
    }
    if (!is_new && !IsAbout(party_connections, idleness->party_connections)) {
      list();
      continue;
    }
    if (!MayReplace(party_connections, *idleness, now)) return false;
    replaceable_.pop_back();
    if (one.session != nullptr) {
      one.session->Abort("replaced");
    } else {
      one.handshake->connection->Abort();
    }
    return true;
  }
}

// Which of the busy ones give way next. A closed one is there until what it waits for has ended: where many
// are, none is closed, so that connections are bounded.
void ConnectionTable::ListBusy(std::chrono::steady_clock::time_point now) {
  busy_.clear();
  busy_at_ = now;
  size_t most = 0;
  size_t closed = 0;
  for (Session* candidate : sessions_) {
    if (candidate->place() != Place::kNormal) continue;
    const auto idleness = candidate->IdlenessAt(now);
    if (!idleness) ++closed;
    if (!idleness || idleness->stage != Idleness::Stage::kBusy || idleness->party_connections < most)
      continue;
    if (idleness->party_connections > most) busy_.clear();
    most = idleness->party_connections;
    busy_.push_back(candidate);
  }
  if (closed > sessions_.size() / 8) busy_.clear();
  const size_t listed = std::min(kListed, busy_.size());
  busy_.erase(busy_.begin(), busy_.end() - static_cast<std::ptrdiff_t>(listed));
}

bool ConnectionTable::CloseBusy(size_t party_connections) {
  const auto now = std::chrono::steady_clock::now();
  if (now - busy_at_ > kListedFor) ListBusy(now);
  while (!busy_.empty()) {
    Session* const newest = busy_.back();
    const auto idleness = newest->IdlenessAt(now);
    const bool is_busy = idleness && idleness->stage == Idleness::Stage::kBusy;
    if (is_busy && !MayReplace(party_connections, *idleness, now)) return false;
    busy_.pop_back();
    if (!is_busy) continue;
    newest->Abort("replaced");
    return true;
  }
  return false;
}

std::optional<Place> ConnectionTable::MakeRoom(Connection::Socket& socket, size_t connections_max) {
  if (size() < connections_max + reserved_.held()) return Place::kNormal;
  const size_t others = places_.HoldingOf(PartyOf({}, Connection::PeerOf(socket)));
  if (CloseOldest(Place::kNormal, others)) return Place::kNormal;
  if (reserved_.held() < kReservedPlaces) return Place::kReserved;
  if (CloseBusy(others)) return Place::kNormal;
  if (CloseOldest(Place::kReserved, others)) return Place::kReserved;
  return std::nullopt;
}

bool ConnectionTable::MakeNormalRoom(size_t party_connections, size_t connections_max) {
  return size() < connections_max + reserved_.held() || CloseOldest(Place::kNormal, party_connections) ||
         CloseBusy(party_connections);
}

void ConnectionTable::Begin(Handshake& handshake) {
  handshake.begun = true;
  size_t begun = 0;
  Handshake* closed = nullptr;
  for (Handshake& one : handshakes_) {
    const Connection& connection = *one.connection;
    if (!one.begun || connection.gone()) continue;
    ++begun;
    if (closed == nullptr || connection.party_connections() > closed->connection->party_connections()) {
      closed = &one;
    }
  }
  if (begun > kHandshakesMax) closed->connection->Abort();
}

size_t ConnectionTable::idle() const {
  const auto idle = std::ranges::count_if(sessions_, [](const Session* session) { return session->idle(); });
  return static_cast<size_t>(idle) + handshakes_.size();
}

void ConnectionTable::CloseIdle() {
  for (const Handshake& handshake : handshakes_) handshake.connection->Abort();
  for (Session* session : sessions_) {
    if (session->idle()) session->Abort();
  }
}

void ConnectionTable::AbortAll() {
  for (const Handshake& handshake : handshakes_) handshake.connection->Abort();
  for (Session* session : sessions_) session->Abort();
}

}  // namespace quire::server
