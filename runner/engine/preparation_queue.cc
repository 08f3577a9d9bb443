#include "runner/engine/preparation_queue.h"

#include <pthread.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "api/base/text_bounds.h"

namespace quire::runner::engine {
namespace {

using std::chrono::nanoseconds;

nanoseconds TimeOf(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return std::chrono::seconds(time.tv_sec) + nanoseconds(time.tv_nsec);
}

// Calls of the tool match a schema, whatever the request's tool_choice is. A short one may cost as much as a long one.
bool HasSchema(const api::Tool& tool) {
  return tool.callable && !tool.parameters_json.empty() && tool.parameters_json != "{}";
}

// Whether a grammar of unknown cost may have to be compiled for the answer, or a template parsed. Names of tools without a
// schema cost no more than other text.
bool CompilesSomething(const api::Request& request) {
  if (request.format || !request.go_template.empty()) return true;
  const auto* chat = std::get_if<api::ChatPrompt>(&request.prompt);
  return chat != nullptr && !chat->tools.empty() &&
         (request.tool_choice == api::ToolChoice::kRequired || std::ranges::any_of(chat->tools, HasSchema));
}

}  // namespace

Lane PreparationQueue::LaneOf(const api::Request& request) {
  if (CompilesSomething(request)) return Lane::kShort;
  return api::TextBytes(request.prompt) <= kLightBytesMax ? Lane::kLight : Lane::kMedium;
}

void PreparationQueue::Push(PreparationJob job) {
  job.lane = LaneOf(job.submit.request);
  {
    std::lock_guard lock(mutex_);
    const api::Client& client = job.submit.request.client;
    shares_.Enter(client.Party(), client.weight);
    Waiting(job.lane).push_back(std::move(job));
  }
  changed_.notify_all();
}

void PreparationQueue::Cancel(api::RequestId id) {
  std::lock_guard lock(mutex_);
  for (auto& lane : waiting_) {
    std::erase_if(lane, [&](const PreparationJob& job) {
      if (job.submit.id != id) return false;
      shares_.Exit(job.submit.request.client.Party());
      return true;
    });
  }
  for (const Running& running : running_) {
    if (running.id == id) running.canceled->store(true, std::memory_order_relaxed);
  }
}

PreparationJob PreparationQueue::PopFrom(std::deque<PreparationJob>& lane) {
  const auto next = std::ranges::min_element(lane, {}, [this](const PreparationJob& job) {
    return shares_.Of(job.submit.request.client.Party()).virtual_time;
  });
  PreparationJob job = std::move(*next);
  lane.erase(next);
  clockid_t clock{};
  pthread_getcpuclockid(pthread_self(), &clock);
  running_.push_back({job.submit.id, job.submit.request.client.Party(), job.canceled, clock, TimeOf(clock)});
  return job;
}

std::optional<PreparationJob> PreparationQueue::Pop(std::span<const Lane> lanes) {
  std::unique_lock lock(mutex_);
  while (true) {
    if (stopped_) return std::nullopt;
    for (const Lane lane : lanes) {
      if (!Waiting(lane).empty()) return PopFrom(Waiting(lane));
    }
    changed_.wait(lock);
  }
}

std::string PreparationQueue::EndTry(api::RequestId id) {
  const auto running = std::ranges::find(running_, id, &Running::id);
  const nanoseconds used = TimeOf(running->clock) - running->begin;
  std::string party = std::move(running->party);
  shares_.Charge(party, std::chrono::duration_cast<std::chrono::microseconds>(used).count());
  running_.erase(running);
  return party;
}

void PreparationQueue::Finish(api::RequestId id) {
  std::lock_guard lock(mutex_);
  shares_.Exit(EndTry(id));
}

void PreparationQueue::Demote(PreparationJob job) {
  {
    std::lock_guard lock(mutex_);
    const std::string party = EndTry(job.submit.id);
    if (*job.canceled) return shares_.Exit(party);
    job.lane = job.lane == Lane::kMedium ? Lane::kLong : Lane::kMedium;
    Waiting(job.lane).push_back(std::move(job));
  }
  changed_.notify_all();
}

void PreparationQueue::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
}

bool PreparationQueue::Exceeds(nanoseconds cpu_time) const {
  std::lock_guard lock(mutex_);
  return std::ranges::any_of(
      running_, [&](const Running& running) { return TimeOf(running.clock) - running.begin > cpu_time; });
}

}  // namespace quire::runner::engine
