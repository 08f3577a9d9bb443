// The connections that are there, and which of them a new one replaces when all places are taken. I/O thread
// only.
#pragma once

#include <chrono>
#include <cstddef>
#include <list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "api/base/fair/quota.h"
#include "server/http/connection.h"
#include "server/http/replacement.h"
#include "server/http/session.h"

namespace quire::server {

class ConnectionTable {
 public:
  // A TLS connection that is no session yet.
  struct Handshake {
    std::shared_ptr<Connection> connection;
    Place place = Place::kNormal;
    bool begun = false;  // the client has sent something
    std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
  };
  using SessionEntry = std::list<Session*>::iterator;
  using HandshakeEntry = std::list<Handshake>::iterator;

  SessionEntry Add(Session& session) { return sessions_.insert(sessions_.end(), &session); }
  void Remove(SessionEntry entry);
  HandshakeEntry Add(Handshake handshake) {
    return handshakes_.insert(handshakes_.end(), std::move(handshake));
  }
  void Remove(HandshakeEntry entry);

  // The place of a new connection, of `connections_max` but for the reserved ones. Connections opened only to
  // be held cannot keep others out, and while every place has a request, the reserved ones still say that the
  // server lives; who asks for more there needs a normal one (MakeNormalRoom). Nothing: there is none.
  std::optional<Place> MakeRoom(Connection::Socket& socket, size_t connections_max);
  // Closes the connection that a new one replaces, whose party has `party_connections` without it. False:
  // there is none.
  bool CloseOldest(Place place, size_t party_connections);
  // Whether one in a reserved place, of a party that has `party_connections` without it, may have a normal
  // one. A busy connection may end for it, the newest of the party with most.
  bool MakeNormalRoom(size_t party_connections, size_t connections_max);
  // The client has sent something: where too many have, the oldest of the party with the most connections
  // ends.
  void Begin(Handshake& handshake);

  size_t size() const { return sessions_.size() + handshakes_.size(); }
  size_t idle() const;  // without a request in progress
  const std::list<Session*>& sessions() const { return sessions_; }
  void CloseIdle();
  void AbortAll();

  // Each connection holds one; MakeRoom() has their bound.
  fair::Quota& places() { return places_; }
  // Each in a reserved place holds one; likewise.
  fair::Quota& reserved() { return reserved_; }

 private:
  // One of both.
  struct Replaceable {
    Session* session = nullptr;
    Handshake* handshake = nullptr;
    Idleness idleness;  // when it was listed
  };
  static std::optional<Idleness> IdlenessOf(const Handshake& handshake);
  bool CloseBusy(size_t party_connections);
  void ListBusy(std::chrono::steady_clock::time_point now);
  void ListReplaceable(Place place, std::chrono::steady_clock::time_point now);

  fair::Quota places_;
  fair::Quota reserved_;
  std::list<Session*> sessions_;
  std::list<Handshake> handshakes_;       // oldest first
  std::vector<Replaceable> replaceable_;  // of one place, the next one last; all are there
  Place replaceable_place_ = Place::kNormal;
  bool listed_none_ = true;
  std::chrono::steady_clock::time_point listed_at_ = {};
  std::vector<Session*> busy_;  // of the party with most connections, the newest last; all are there
  std::chrono::steady_clock::time_point busy_at_ = {};
};

}  // namespace quire::server
