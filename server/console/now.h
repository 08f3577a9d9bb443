// What the daemon does now: loaded models, requests in progress and those that ended last, as GET /quire/now
// shows them. I/O thread only.
//
// A client sees its own requests; an admin, or anybody where there are no keys, sees all. Of other keys'
// requests a client sees how many there are, never their tokens, and nothing of what they put into the
// caches.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "scheduler/dispatcher.h"
#include "server/http/awaitable.h"
#include "server/http/message.h"
#include "server/http/request_log.h"

namespace quire::server {

// The requests that ended last, newest first. Only those that named a model.
class RecentRequests {
 public:
  static constexpr size_t kMax = 64;

  struct Entry {
    RequestLog log;
    std::chrono::steady_clock::time_point ended;
    std::chrono::system_clock::time_point ended_at;
  };

  void Add(const RequestLog& log, std::chrono::steady_clock::time_point now);
  const std::deque<Entry>& entries() const { return entries_; }
  uint64_t added() const { return added_; }  // so far; changes with the entries

 private:
  std::deque<Entry> entries_;
  uint64_t added_ = 0;
};

struct NowSources {
  std::function<void(const std::function<void(const RequestLog&)>& visit)> visit_requests =
      {};  // in progress
  std::function<std::vector<scheduler::LoadedModel>()> loaded_models = {};
  std::function<std::vector<scheduler::LoadingModel>()> loading_models = {};
  // Dispatcher::InspectEngines and Engines; empty: there are no engines to ask.
  std::function<Awaitable<void>(std::chrono::steady_clock::time_point until)> inspect_engines = {};
  std::function<std::vector<scheduler::EngineView>()> engines = {};
  std::function<int64_t()> memory_budget_bytes = {};  // of all models together; 0 = none
  std::function<bool()> draining = {};                // the daemon ends: so do streams
  const RecentRequests& recent;
};

// Whose view it is.
struct Viewer {
  std::string key;     // name of the API key; empty: none was needed
  bool admin = false;  // sees everybody's requests
  // Whose prefixes and prompts' texts may be shown. An admin sees no other's.
  std::string isolation = {};
};
Viewer ViewerOf(const HttpRequest& request);
// The isolation key of the client's requests that have this cache_salt.
std::string IsolationOf(const HttpRequest& request, std::string cache_salt);

// JSON: {"viewer", "memory_budget_bytes", "models": [...], "loading": [...], "requests": [...], "recent":
// [...], "shares": [...], "others": {...}}; "recent" is most of it, and can be left out. Times are
// milliseconds. docs/api.md describes the fields.
std::string EncodeNow(const NowSources& sources, const Viewer& viewer,
                      std::chrono::steady_clock::time_point now, bool with_recent = true);

}  // namespace quire::server
