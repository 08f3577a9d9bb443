// Sends several generations of one request to its client: the choices of a completion.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "server/routes/reply.h"

namespace quire::server {

// Encodes one reply that combines several generations.
class ChoicesReply {
 public:
  virtual ~ChoicesReply() = default;
  virtual bool streams() const = 0;
  virtual std::string_view stream_type() const = 0;
  virtual std::string_view keep_alive() const = 0;  // as Reply::keep_alive()
  // Bytes to send now, possibly none. Not streamed: the whole body at the last Finished.
  virtual std::string OnEvent(size_t choice, const api::Event& event, const ReplyTiming& timing) = 0;
};

// Submits all jobs at once and sends their events as they arrive, each job's in its order. The first one that
// fails ends them all, as SendReply() would end with it. Cancellation destroys every generation.
// REQUIRES: at least one job.
Awaitable<void> SendChoices(Exchange& exchange, Backend& backend, std::vector<GenerationJob> jobs,
                            ChoicesReply& reply);

}  // namespace quire::server
