// What a loaded runner says of its engine and caches to those who look. Nothing is asked while nobody does.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include "api/base/error.h"
#include "api/ipc/messages.h"
#include "scheduler/async_event.h"

namespace quire::scheduler {

// Belongs to one runner. I/O thread only.
class RunnerViews {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Send = std::function<void(const api::ipc::ToRunner&)>;
  struct CacheAnswer {
    explicit CacheAnswer(boost::asio::any_io_executor executor) : changed(std::move(executor)) {}
    api::ipc::InspectCache question;
    std::optional<api::Result<api::ipc::CacheInspected>> answer;
    AsyncEvent changed;  // notified with the answer
  };

  RunnerViews(const boost::asio::any_io_executor& executor, Send send)
      : send_(std::move(send)), executor_(executor), engine_answered_(executor) {}

  // Asks the engine what it does, unless it is still to answer or has just answered. REQUIRES: loaded.
  void InspectEngine();
  bool engine_to_answer() const { return engine_asked_.has_value(); }
  AsyncEvent& engine_answered() { return engine_answered_; }  // notified when it has, or will not
  // Its last answer; null where there is none, or an old one that no other is to follow.
  const api::ipc::EngineInspected* engine(Time now) const;
  // kOverloaded when many questions are open. REQUIRES: loaded and not stopping.
  api::Result<std::shared_ptr<CacheAnswer>> InspectCache(api::ipc::InspectCache question);

  // Answers. An error: nobody asked that.
  api::Result<void> HandleEngine(api::ipc::EngineInspected inspected);
  api::Result<void> HandleCache(api::ipc::CacheInspected inspected);
  // The runner answers nothing more.
  void End();

 private:
  const Send send_;
  const boost::asio::any_io_executor executor_;
  uint64_t last_question_ = 0;
  std::optional<uint64_t> engine_asked_;  // the question that is open
  std::optional<api::ipc::EngineInspected> engine_;
  Time engine_answered_at_{};
  AsyncEvent engine_answered_;
  std::unordered_map<uint64_t, std::shared_ptr<CacheAnswer>> cache_questions_;  // open
};

}  // namespace quire::scheduler
