// A stream of server-sent events that looks for changes while its client is there.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "server/http/awaitable.h"
#include "server/http/exchange.h"

namespace quire::server {

// What a stream shows. Lives in its handler.
class ChangeSource {
 public:
  virtual ~ChangeSource() = default;
  // The data of the next event; nothing: it is as it was.
  virtual Awaitable<std::optional<std::string>> Next() = 0;
};

// Counts a route's open streams by party (http/party.h): no party holds all connections with them, or makes
// the daemon look for changes without end. I/O thread only.
class StreamCounts {
 public:
  // Also those whose page is closed, until their next write, some seconds later: a person may open many pages
  // in turn.
  static constexpr int kPartyMax = 64;

  // One open stream.
  class Permit {
   public:
    Permit(std::shared_ptr<std::map<std::string, int>> open, std::string party);
    Permit(const Permit&) = delete;
    Permit& operator=(const Permit&) = delete;
    ~Permit();

   private:
    const std::shared_ptr<std::map<std::string, int>> open_;
    const std::string party_;
  };
  // Null: the party has as many as it may have.
  std::unique_ptr<Permit> Open(const std::string& party);

 private:
  const std::shared_ptr<std::map<std::string, int>> open_ = std::make_shared<std::map<std::string, int>>();
};

// One event at each change, at most two a second, and a comment after every 10 s without one, until the
// client is gone or `draining` says so. 429 where the party has too many open streams.
Awaitable<void> StreamChanges(Exchange& exchange, ChangeSource& source, std::function<bool()> draining,
                              StreamCounts& counts);

}  // namespace quire::server
