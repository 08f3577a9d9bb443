#include "runner/engine/preparation.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <stdexcept>
#include <utility>

#include "runner/work/work_budget.h"

namespace quire::runner::engine {
namespace {

struct Stopped {
  bool canceled = false;  // otherwise: the error
  api::Error error = {};
};

// Nothing where `work` came to its end.
template <class Work>
std::optional<Stopped> RunBounded(const PreparationJob& job, std::chrono::nanoseconds cpu_time, Work work) {
  try {
    const WorkBudget budget(cpu_time, *job.canceled);
    work();
    return std::nullopt;
  } catch (const WorkStopped& stopped) {
    if (stopped.reason == WorkStopped::Reason::kCanceled) return Stopped{.canceled = true};
    const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(cpu_time).count();
    return Stopped{
        .error = {api::ErrorCode::kInvalidArgument,
                  fmt::format("preparing the request takes more than {} ms of CPU time: its text, template, "
                              "tools or format are too expensive",
                              milliseconds)}};
  } catch (const std::bad_alloc&) {
    return Stopped{.error = {api::ErrorCode::kUnavailable, "not enough memory to prepare the request"}};
  } catch (const std::length_error&) {
    return Stopped{.error = {api::ErrorCode::kTooLarge, "the request is too large to prepare"}};
  }
}

}  // namespace

std::optional<api::Result<BuiltPrompt>> Prepare(const PromptContext& context, const PreparationJob& job,
                                                std::chrono::nanoseconds cpu_time) {
  std::optional<api::Result<BuiltPrompt>> built;
  const auto stopped = RunBounded(job, cpu_time, [&] { built = BuildPrompt(context, job.submit.request); });
  if (!stopped) return built;
  if (stopped->canceled) return std::nullopt;
  return std::unexpected(stopped->error);
}

Preparation::Preparation(PreparationQueue& queue, const PromptContext& context,
                         std::chrono::nanoseconds cpu_time, Receivers receivers)
    : queue_(queue), context_(context), cpu_time_(cpu_time), receivers_(std::move(receivers)) {
  for (const auto lane : {PreparationQueue::Lane::kLight, PreparationQueue::Lane::kHeavy}) {
    threads_.emplace_back([this, lane] { Run(lane); });
  }
}

Preparation::~Preparation() { queue_.Stop(); }

void Preparation::Run(PreparationQueue::Lane lane) {
  while (auto job = queue_.Pop(lane)) {
    const api::RequestId id = job->submit.id;
    Work(*job);
    queue_.Finish(id);
  }
}

void Preparation::Work(PreparationJob& job) {
  const api::RequestId id = job.submit.id;
  const int32_t asked = job.submit.request.params.num_ctx;
  const auto cpu_time = PreparationTime(
      cpu_time_, asked > 0 ? std::min(asked, context_.context_length) : context_.context_length);
  if (!job.submit.request.prompt_only) {
    const auto begin = Clock::now();
    auto prompt = Prepare(context_, job, cpu_time);
    if (!prompt) return;
    if (*prompt) (*prompt)->build_time = Clock::now() - begin;
    receivers_.built(PromptBuilt{id, std::move(job.submit.request), *std::move(prompt), job.arrived,
                                 std::move(job.submit.resume)});
    return;
  }
  std::vector<api::Event> events;
  const auto stopped =
      RunBounded(job, cpu_time, [&] { events = DescribePrompt(context_, job.submit.request); });
  if (stopped && stopped->canceled) return;
  if (stopped) events = {api::Failed{stopped->error}};
  for (api::Event& event : events) receivers_.described({id, std::move(event)});
}

}  // namespace quire::runner::engine
