#include "runner/engine/process/preparation_queue.h"

#include <pthread.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "api/base/request_memory.h"
#include "api/base/text_bounds.h"

namespace quire::runner::engine {
namespace {

using std::chrono::nanoseconds;

// How often it is looked whether there is memory for formats again.
constexpr std::chrono::milliseconds kFormatInterval(10);
constexpr size_t kMediumImageBytesMax = size_t{1} << 20;

nanoseconds TimeOf(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return std::chrono::seconds(time.tv_sec) + nanoseconds(time.tv_nsec);
}

// Calls of the tool match a schema, whatever the request's tool_choice is. A short one may cost as much as a
// long one.
bool HasSchema(const api::Tool& tool) {
  return tool.callable && !tool.parameters_json.empty() && tool.parameters_json != "{}";
}

// Whether a grammar of unknown cost may have to be compiled for the answer, or a template parsed. Names of
// tools without a schema cost no more than other text.
bool CompilesSomething(const api::Request& request) {
  if (request.format || !request.go_template.empty()) return true;
  const auto* chat = std::get_if<api::ChatPrompt>(&request.prompt);
  return chat != nullptr && !chat->tools.empty() &&
         (request.tool_choice == api::ToolChoice::kRequired || std::ranges::any_of(chat->tools, HasSchema));
}

}  // namespace

Lane PreparationQueue::LaneOf(const api::Request& request) {
  const size_t images = api::ImageBytes(request.prompt);
  if (images > kMediumImageBytesMax) return Lane::kLong;  // a try would be in vain
  if (CompilesSomething(request)) return Lane::kShort;
  const bool light = images == 0 && api::TextBytes(request.prompt) <= kLightBytesMax;
  return light ? Lane::kLight : Lane::kMedium;
}

void PreparationQueue::Push(PreparationJob job) {
  job.lane = LaneOf(job.submit.request);
  {
    const api::MutexLock lock(mutex_);
    PushJob(std::move(job));
  }
  changed_.notify_all();
}

void PreparationQueue::PushJob(PreparationJob job) {
  const fair::PartyId party = job.submit.request.client.party;
  const uint64_t member = MemberOf(job.lane, job.waits_for_formats);
  queue_.Push(party, member, std::move(job));
}

void PreparationQueue::Cancel(api::RequestId id) {
  const api::MutexLock lock(mutex_);
  queue_.RemoveFirst([id](const PreparationJob& job) { return job.submit.id == id; });
  for (const Running& running : running_) {
    if (running.id == id) running.canceled->store(true, std::memory_order_relaxed);
  }
}

// Nobody says when memory of formats is given back.
std::optional<PreparationJob> PreparationQueue::Pop(std::span<const Lane> lanes,
                                                    const MayUseFormat& may_use_format) {
  api::UniqueLock lock(mutex_);
  while (!stopped_) {
    bool some_wait = false;
    for (const Lane lane : lanes) {
      auto next = queue_.Pop([&](const fair::PartyId& party, uint64_t member) {
        if (member == MemberOf(lane, false)) return true;
        if (member != MemberOf(lane, true)) return false;
        some_wait = true;
        return !may_use_format || may_use_format(party);
      });
      if (next) return Begin(*std::move(next));
    }
    if (some_wait) {
      changed_.wait_for(lock, kFormatInterval);
    } else {
      changed_.wait(lock);
    }
  }
  return std::nullopt;
}

PreparationJob PreparationQueue::Begin(Queue::Next next) {
  PreparationJob job = std::move(next.item);
  clockid_t clock{};
  pthread_getcpuclockid(pthread_self(), &clock);
  running_.push_back({.turn = std::move(next.turn),
                      .id = job.submit.id,
                      .canceled = job.canceled,
                      .checks = job.checks,
                      .clock = clock,
                      .begin = TimeOf(clock),
                      .checks_seen = *job.checks});
  return job;
}

void PreparationQueue::EndTry(api::RequestId id) {
  const auto running = std::ranges::find(running_, id, &Running::id);
  queue_.Charge(running->turn, (TimeOf(running->clock) - running->begin).count());
  running_.erase(running);
}

void PreparationQueue::Finish(api::RequestId id) {
  const api::MutexLock lock(mutex_);
  EndTry(id);
}

void PreparationQueue::Demote(PreparationJob job) {
  job.lane = job.lane == Lane::kMedium ? Lane::kLong : Lane::kMedium;
  TryAgain(std::move(job));
}

void PreparationQueue::Wait(PreparationJob job) {
  job.waits_for_formats = true;
  TryAgain(std::move(job));
}

// Its party has work all the time, and so does not begin again in front of others.
void PreparationQueue::TryAgain(PreparationJob job) {
  const api::RequestId id = job.submit.id;
  {
    const api::MutexLock lock(mutex_);
    if (!*job.canceled) PushJob(std::move(job));
    EndTry(id);
  }
  changed_.notify_all();
}

void PreparationQueue::Stop() {
  {
    const api::MutexLock lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
}

std::vector<api::RequestId> PreparationQueue::FindStuck(nanoseconds cpu_time) {
  const api::MutexLock lock(mutex_);
  std::vector<api::RequestId> stuck;
  for (Running& running : running_) {
    const uint64_t checks = running.checks->load(std::memory_order_relaxed);
    running.unchanged = checks == running.checks_seen ? running.unchanged + 1 : 0;
    running.checks_seen = checks;
    const bool spent = TimeOf(running.clock) - running.begin > cpu_time;
    if (spent || running.unchanged >= kStuckQuestions) stuck.push_back(running.id);
  }
  return stuck;
}

}  // namespace quire::runner::engine
