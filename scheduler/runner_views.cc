#include "scheduler/runner_views.h"

#include <algorithm>
#include <utility>

#include "scheduler/clock.h"
#include "scheduler/event_queue.h"

namespace quire::scheduler {
namespace {

constexpr std::chrono::milliseconds kEngineFresh{250};  // another question would bring little
constexpr std::chrono::seconds kEngineOld{5};
constexpr size_t kCacheQuestionsMax = 64;

// Nothing of others unless it was asked for.
bool IsProper(const api::ipc::CacheInspected& inspected, const api::ipc::InspectCache& question) {
  const bool counts_others = inspected.other_keys != 0 || inspected.other_nodes != 0;
  return std::ssize(inspected.nodes) <= question.nodes_max && (question.others || !counts_others);
}

// Text of the caller's own prefixes only, and no more than its bounds.
bool IsProper(const api::ipc::InspectedNode& node, bool others) {
  constexpr size_t kTextBytesMax = api::ipc::CacheInspected::kTextBytesMax;
  if (node.begin.size() > kTextBytesMax || node.end.size() > kTextBytesMax) return false;
  return node.tree == 0 || (others && node.begin.empty() && node.end.empty());
}

}  // namespace

void RunnerViews::InspectEngine() {
  if (engine_asked_) return;
  if (engine_ && Clock::now() - engine_answered_at_ < kEngineFresh) return;
  engine_asked_ = ++last_question_;
  send_(api::ipc::InspectEngine{*engine_asked_});
}

const api::ipc::EngineInspected* RunnerViews::engine(Time now) const {
  if (!engine_ || (!engine_asked_ && now - engine_answered_at_ > kEngineOld)) return nullptr;
  return &*engine_;
}

api::Result<void> RunnerViews::HandleEngine(api::ipc::EngineInspected inspected) {
  if (!engine_asked_ || inspected.id != *engine_asked_) return ProtocolError("unexpected EngineInspected");
  engine_asked_.reset();
  engine_ = std::move(inspected);
  engine_answered_at_ = Clock::now();
  engine_answered_.Notify();
  return {};
}

api::Result<std::shared_ptr<RunnerViews::CacheAnswer>> RunnerViews::InspectCache(
    api::ipc::InspectCache question) {
  if (cache_questions_.size() >= kCacheQuestionsMax) {
    return api::Fail(api::ErrorCode::kOverloaded, "too many views of this model's cache are open");
  }
  auto answer = std::make_shared<CacheAnswer>(executor_);
  question.id = ++last_question_;
  answer->question = question;
  cache_questions_.emplace(question.id, answer);
  send_(question);
  return answer;
}

api::Result<void> RunnerViews::HandleCache(api::ipc::CacheInspected inspected) {
  const auto found = cache_questions_.find(inspected.id);
  if (found == cache_questions_.end()) return ProtocolError("unexpected CacheInspected");
  const std::shared_ptr<CacheAnswer> asked = found->second;
  const bool proper =
      IsProper(inspected, asked->question) && std::ranges::all_of(inspected.nodes, [&](const auto& node) {
        return IsProper(node, asked->question.others);
      });
  if (!proper) return ProtocolError("improper nodes in CacheInspected");
  cache_questions_.erase(found);
  asked->answer = std::move(inspected);
  asked->changed.Notify();
  return {};
}

void RunnerViews::End() {
  engine_asked_.reset();
  for (const auto& [id, asked] : std::exchange(cache_questions_, {})) {
    asked->answer = api::Fail(api::ErrorCode::kUnavailable, "the model was unloaded");
    asked->changed.Notify();
  }
  engine_answered_.Notify();
}

}  // namespace quire::scheduler
