#include "server/limits_of_options.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "server/open_files.h"

namespace quire::server {
namespace {

constexpr uint64_t kOpenFiles = 65536;  // wanted, if the hard limit allows it

// A connection is a file, and an upload is two. Says when few files mean few connections.
size_t ConnectionsOf(const Options& options) {
  const uint64_t wanted = std::max<uint64_t>(kOpenFiles, 2 * uint64_t{options.max_connections});
  const uint64_t open_files = RaiseOpenFileLimit(wanted);
  const size_t connections = ConnectionLimit(options.max_connections, open_files);
  if (connections < options.max_connections) {
    spdlog::warn("connections limited max_connections={} open_files={} configured={}", connections,
                 open_files, options.max_connections);
  }
  return connections;
}

// Bodies are in the daemon and again in runners: both have three eighths of the reserve, and answers have a
// quarter. A body of the largest size is there twice while it is read, as itself and as what it becomes.
void LimitToReserve(uint64_t reserve_bytes, TransportLimits& limits) {
  limits.parser.body_bytes = std::min(limits.parser.body_bytes, reserve_bytes / 8);
  limits.buffered_bodies_bytes = std::min(limits.buffered_bodies_bytes, reserve_bytes / 8 * 3);
  limits.answers_bytes = std::min(limits.answers_bytes, reserve_bytes / 4);
  limits.answer_bytes_max = std::min(limits.answer_bytes_max, limits.answers_bytes / 2);
}

}  // namespace

TransportLimits TransportLimitsOf(const Options& options, int64_t reserve_bytes) {
  TransportLimits limits;
  if (reserve_bytes > 0) LimitToReserve(static_cast<uint64_t>(reserve_bytes), limits);
  if (options.max_body_bytes > 0) limits.parser.body_bytes = options.max_body_bytes;
  // A quarter is for small bodies.
  limits.buffered_bodies_bytes = std::max(limits.buffered_bodies_bytes, limits.parser.body_bytes / 3 * 4 + 4);
  limits.connections = ConnectionsOf(options);
  return limits;
}

scheduler::Limits SchedulerLimitsOf(const Options& options, const MemoryBudget& memory,
                                    std::shared_ptr<SnapshotService> snapshots) {
  scheduler::Limits limits;
  limits.snapshots = std::move(snapshots);
  limits.memory_bytes = memory.bytes;
  if (options.max_loaded_models > 0) limits.models_max = options.max_loaded_models;
  if (options.context_length > 0) limits.default_num_ctx = options.context_length;
  limits.queue_max = options.max_queue;
  // A model that is flooded leaves room in the queue for requests of the others.
  const int32_t three_quarters = options.max_queue - options.max_queue / 4;
  limits.model_queue_max = options.max_queue_per_model > 0 ? options.max_queue_per_model : three_quarters;
  limits.queue_timeout = options.queue_timeout;
  limits.runner_settings = options.runner_settings;
  if (!options.numa.empty()) limits.runner_arguments.push_back("--numa=" + options.numa);
  if (options.require_sandbox) limits.runner_arguments.emplace_back("--require-sandbox");
  limits.load_timeout = options.load_timeout;
  limits.default_keep_alive = options.keep_alive;
  return limits;
}

}  // namespace quire::server
