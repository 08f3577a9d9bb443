// Sends traces of requests to a collector (QUIRE_OTLP_ENDPOINT). A thread of its own: requests never wait for
// it. A collector that does not take them costs memory for kTracesMax traces at most; more are dropped and
// counted.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "api/base/mutex.h"
#include "server/trace_spans.h"

namespace quire::server {

class TraceExporter {
 public:
  static constexpr size_t kTracesMax = 2048;

  // `endpoint`: "http://127.0.0.1:4318"; "/v1/traces" is added.
  // `time_max`: of an exchange, however slowly the collector goes on.
  TraceExporter(const std::string& endpoint, std::string instance,
                std::chrono::milliseconds time_max = std::chrono::seconds(10));
  // Traces that wait are sent once more, for at most a second.
  ~TraceExporter();
  TraceExporter(const TraceExporter&) = delete;
  TraceExporter& operator=(const TraceExporter&) = delete;

  // A request that has just ended; does nothing where it is not to be traced. Any thread; does not wait.
  void Observe(const RequestLog& log);
  void Export(RequestTrace trace);

  struct Stats {
    uint64_t sent = 0, dropped = 0;
  };
  Stats stats() const { return {sent_, dropped_}; }

 private:
  void Run();
  bool Post(const std::vector<RequestTrace>& traces);

  const std::string url_, instance_;
  const std::chrono::milliseconds time_max_;
  std::atomic<bool> aborted_ = false;
  std::atomic<uint64_t> sent_ = 0, dropped_ = 0;
  api::Mutex mutex_;
  std::condition_variable wake_;
  std::deque<RequestTrace> waiting_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  bool failed_ = false;  // of the thread: the last batch
  bool ended_ GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last
};

}  // namespace quire::server
