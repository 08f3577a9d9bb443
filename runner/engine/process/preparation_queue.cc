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
using Clock = std::chrono::steady_clock;

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
  if (images > kMediumImageBytesMax) return Lane::kLong;  // decoding is not cut
  if (CompilesSomething(request)) return Lane::kShort;
  const bool light = images == 0 && api::TextBytes(request.prompt) <= kLightBytesMax;
  return light ? Lane::kLight : Lane::kMedium;
}

void PreparationQueue::Push(PreparationJob job) {
  job.lane = LaneOf(job.submit.request);
  job.due = job.arrived;
  if (job.lane == Lane::kLight) job.due += api::TextBytes(job.submit.request.prompt) * kDelayPerByte;
  {
    const api::MutexLock lock(mutex_);
    const api::Client& client = job.submit.request.client;
    shares_.Enter(client.party.name(), client.party.weight());
    Waiting(job.lane).push_back(std::move(job));
  }
  changed_.notify_all();
}

void PreparationQueue::Cancel(api::RequestId id) {
  const api::MutexLock lock(mutex_);
  for (auto& lane : waiting_) {
    std::erase_if(lane, [&](const PreparationJob& job) REQUIRES(mutex_) {
      if (job.submit.id != id) return false;
      shares_.Exit(job.submit.request.client.party.name());
      return true;
    });
  }
  for (const Running& running : running_) {
    if (running.id == id) running.canceled->store(true, std::memory_order_relaxed);
  }
}

std::optional<PreparationJob> PreparationQueue::PopFrom(std::deque<PreparationJob>& lane,
                                                        const MayUseFormat& may_use_format) {
  auto next = lane.end();
  std::pair<double, Clock::time_point> first;
  for (auto job = lane.begin(); job != lane.end(); ++job) {
    const std::string& party = job->submit.request.client.party.name();
    const std::pair<double, Clock::time_point> rank(shares_.Of(party).virtual_time, job->due);
    if (next != lane.end() && rank >= first) continue;
    if (job->waits_for_formats && may_use_format && !may_use_format(party)) continue;
    next = job;
    first = rank;
  }
  if (next == lane.end()) return std::nullopt;
  PreparationJob job = std::move(*next);
  lane.erase(next);
  clockid_t clock{};
  pthread_getcpuclockid(pthread_self(), &clock);
  running_.push_back({.id = job.submit.id,
                      .party = job.submit.request.client.party.name(),
                      .canceled = job.canceled,
                      .checks = job.checks,
                      .clock = clock,
                      .begin = TimeOf(clock),
                      .checks_seen = *job.checks});
  return job;
}

// Nobody says when memory of formats is given back.
std::optional<PreparationJob> PreparationQueue::Pop(std::span<const Lane> lanes,
                                                    const MayUseFormat& may_use_format) {
  api::UniqueLock lock(mutex_);
  while (true) {
    if (stopped_) return std::nullopt;
    for (const Lane lane : lanes) {
      if (auto job = PopFrom(Waiting(lane), may_use_format)) return job;
    }
    if (SomeWaitForFormats(lanes)) {
      changed_.wait_for(lock, kFormatInterval);
    } else {
      changed_.wait(lock);
    }
  }
}

bool PreparationQueue::SomeWaitForFormats(std::span<const Lane> lanes) {
  return std::ranges::any_of(lanes, [this](Lane lane) REQUIRES(mutex_) { return !Waiting(lane).empty(); });
}

std::string PreparationQueue::ChargeTry(api::RequestId id) {
  const auto running = std::ranges::find(running_, id, &Running::id);
  const nanoseconds used = TimeOf(running->clock) - running->begin;
  std::string party = std::move(running->party);
  shares_.Charge(party, std::chrono::duration_cast<std::chrono::microseconds>(used).count());
  running_.erase(running);
  return party;
}

void PreparationQueue::Finish(api::RequestId id) {
  const api::MutexLock lock(mutex_);
  shares_.Exit(ChargeTry(id));
}

void PreparationQueue::Demote(PreparationJob job) {
  const Lane next = job.lane == Lane::kMedium ? Lane::kLong : Lane::kMedium;
  EndTry(std::move(job), next);
}

void PreparationQueue::Wait(PreparationJob job) {
  job.waits_for_formats = true;
  const Lane same = job.lane;
  EndTry(std::move(job), same);
}

void PreparationQueue::EndTry(PreparationJob job, Lane next) {
  {
    const api::MutexLock lock(mutex_);
    const std::string party = ChargeTry(job.submit.id);
    if (*job.canceled) return shares_.Exit(party);
    job.lane = next;
    job.due = Clock::now();
    Waiting(next).push_back(std::move(job));
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
