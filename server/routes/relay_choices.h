// Carries several generations of one request to its client: the choices of a completion.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "server/routes/relay.h"

namespace quire::server {

// One reply that holds what several generations say.
class ChoicesReply {
 public:
  virtual ~ChoicesReply() = default;
  virtual bool streams() const = 0;
  virtual std::string_view stream_type() const = 0;
  virtual std::string_view keep_alive() const = 0;  // as Reply::keep_alive()
  // Bytes to send now, possibly none. Not streamed: the whole body at the last Finished.
  virtual std::string OnEvent(size_t choice, const api::Event& event, const Moment& moment) = 0;
};

// Submits all jobs at once and relays their events as they come, each job's in its order. The first one that
// fails ends them all, as Relay() would end with it. Cancellation destroys every generation.
// REQUIRES: at least one job.
Awaitable<void> RelayChoices(Exchange& exchange, Backend& backend, std::vector<Job> jobs,
                             ChoicesReply& reply);

}  // namespace quire::server
