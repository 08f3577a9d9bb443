#include "runner/engine/process/preparation.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <latch>
#include <new>
#include <stdexcept>
#include <utility>
#include <variant>

#include "api/base/text_bounds.h"
#include "runner/constraint/output_format.h"
#include "runner/engine/prompt/model_defaults.h"
#include "runner/work/work_budget.h"
#include "runner/work/work_memory.h"

namespace quire::runner::engine {
namespace {

constexpr int kLongNice = 5;

constexpr std::array kLightLanes = {Lane::kLight};
constexpr std::array kTryLanes = {Lane::kShort, Lane::kMedium, Lane::kLight};
constexpr std::array kLongLanes = {Lane::kLong};

struct Stopped {
  bool canceled = false;
  bool spent = false;  // more time or memory may help
  bool waits = false;  // for memory of formats
  api::Error error = {};
};

Stopped OutOfTime(std::chrono::nanoseconds cpu_time) {
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(cpu_time).count();
  return {.spent = true,
          .error = {api::ErrorCode::kInvalidArgument,
                    fmt::format("preparing the request takes more than {} ms of CPU time: its text, images, "
                                "template, tools or format are too expensive",
                                milliseconds)}};
}

Stopped OutOfMemory(size_t bytes) {
  return {.spent = true,
          .error = {api::ErrorCode::kInvalidArgument,
                    fmt::format("preparing the request takes more than {} MiB of memory: its text, template, "
                                "tools or format are too large",
                                bytes >> 20U)}};
}

// Nothing where `work` came to its end. The one place of a runner where a failing allocation ends a request.
template <class Work>
std::optional<Stopped> RunBounded(const PreparationJob& job, const TryLimits& limits, Work work) {
  const WorkMemory memory(limits.bytes);
  try {
    const WorkBudget budget(limits.cpu_time, *job.canceled, job.checks.get());
    work();
    // What compiles a format reports a bound of its own, met at the same time, as an error.
    if (!memory.exceeded()) return std::nullopt;
  } catch (const WorkStopped& stopped) {
    if (stopped.reason == WorkStopped::Reason::kCanceled) return Stopped{.canceled = true};
    if (stopped.reason == WorkStopped::Reason::kFormatMemory) return Stopped{.waits = true};
    return OutOfTime(limits.cpu_time);
  } catch (const std::bad_alloc&) {
    if (!memory.exceeded())
      return Stopped{.error = {api::ErrorCode::kUnavailable, "not enough memory to prepare the request"}};
  } catch (const std::length_error&) {
    return Stopped{.error = {api::ErrorCode::kTooLarge, "the request is too large to prepare"}};
  }
  return OutOfMemory(limits.bytes);
}

struct Prepared {
  std::optional<Stopped> stopped;
  std::optional<api::Result<BuiltPrompt>> prompt;  // of one that was not stopped
};

Prepared TryToPrepare(const PromptContext& context, const PreparationJob& job, const TryLimits& limits) {
  Prepared prepared;
  prepared.stopped =
      RunBounded(job, limits, [&] { prepared.prompt = BuildPrompt(context, job.submit.request); });
  return prepared;
}

// Frees what a prepared request no longer needs while it waits in the engine's inbox, for as long as a step
// takes. What the engine reads stays: the role of the last message tells how the answer begins.
void DropTexts(api::Request& request) {
  const auto role_of_last = [](const std::vector<api::Message>& messages) {
    std::vector<api::Message> last;
    if (!messages.empty()) last.push_back({.role = messages.back().role, .content = {}});
    return last;
  };
  if (auto* chat = std::get_if<api::ChatPrompt>(&request.prompt)) {
    *chat = {.messages = role_of_last(chat->messages)};
  } else if (auto* continued = std::get_if<api::ContinuedPrompt>(&request.prompt)) {
    *continued = {.context = {}, .messages = role_of_last(continued->messages)};
  } else if (auto* embed = std::get_if<api::EmbedPrompt>(&request.prompt)) {
    *embed = {
        .text = {}, .dimensions = embed->dimensions, .normalize = embed->normalize, .rank = embed->rank};
  } else {
    request.prompt = api::RawPrompt{};
  }
  request.format.reset();
  std::string().swap(request.go_template);  // an assignment keeps the memory
}

}  // namespace

TryLimits LimitsOf(Lane lane, const TryLimits& all) {
  using std::chrono::milliseconds;
  constexpr size_t kMiB = size_t{1} << 20;
  switch (lane) {
    case Lane::kLight:
      return {std::min<std::chrono::nanoseconds>(milliseconds(20), all.cpu_time), 32 * kMiB};
    case Lane::kShort:
      return {std::min<std::chrono::nanoseconds>(milliseconds(10), all.cpu_time), 32 * kMiB};
    case Lane::kMedium:
      return {std::min<std::chrono::nanoseconds>(milliseconds(100), all.cpu_time), 64 * kMiB};
    case Lane::kLong:
      break;
  }
  return all;
}

std::optional<api::Result<BuiltPrompt>> Prepare(const PromptContext& context, const PreparationJob& job,
                                                const TryLimits& limits) {
  auto [stopped, prompt] = TryToPrepare(context, job, limits);
  if (!stopped) return std::move(prompt);
  if (stopped->canceled) return std::nullopt;
  return std::unexpected(std::move(stopped->error));
}

Preparation::Preparation(PreparationQueue& queue, const PromptContext& context,
                         std::chrono::nanoseconds cpu_time, Receivers receivers, int nice_value)
    : queue_(queue), context_(context), cpu_time_(cpu_time), receivers_(std::move(receivers)) {
  threads_.emplace_back([this] { Run(kLightLanes); });
  threads_.emplace_back([this] { Run(kTryLanes); });
  // The sandbox may be closed once this returns.
  std::latch lowered(1);
  threads_.emplace_back([this, &lowered, nice_value] {
    static_cast<void>(::setpriority(PRIO_PROCESS, 0, nice_value + kLongNice));
    lowered.count_down();
    Run(kLongLanes);
  });
  lowered.wait();
}

Preparation::~Preparation() { queue_.Stop(); }

void Preparation::Run(std::span<const Lane> lanes) {
  const auto may_use_format = [this](const fair::PartyId& party) {
    return context_.constraints == nullptr || context_.constraints->MayBegin(party);
  };
  while (auto job = queue_.Pop(lanes, may_use_format)) {
    const api::RequestId id = job->submit.id;
    switch (Work(*job)) {
      case End::kDone:
        queue_.Finish(id);
        break;
      case End::kSpent:
        queue_.Demote(*std::move(job));
        break;
      case End::kWaits:
        queue_.Wait(*std::move(job));
        break;
    }
  }
}

TryLimits Preparation::LimitsFor(const PreparationJob& job) const {
  const int32_t asked = job.submit.request.params.num_ctx;
  const int32_t tokens = asked > 0 ? std::min(asked, context_.context_length) : context_.context_length;
  TryLimits all{.cpu_time = PreparationTime(cpu_time_, tokens), .bytes = PreparationBytes(tokens)};
  const auto images = std::min(api::ImagesOf(job.submit.request.prompt), kTimedImagesMax);
  all.cpu_time += static_cast<int64_t>(images) * kCpuTimePerImage;
  if (job.submit.resume.spent) all = {kResumedTimes * all.cpu_time, kResumedBytes * all.bytes};
  return LimitsOf(job.lane, all);
}

// One that has waited for its format does not wait again: those behind it might have the memory each time.
Preparation::End Preparation::Work(PreparationJob& job) {
  const TryLimits limits = LimitsFor(job);
  if (receivers_.before) receivers_.before(job);
  if (job.submit.request.prompt_only) return Describe(job, limits);
  PromptContext context = context_;
  context.formats_may_wait = !job.waits_for_formats;
  context.resumed = job.submit.resume.spent.has_value();
  const auto begin = Clock::now();
  auto [stopped, prompt] = TryToPrepare(context, job, limits);
  if (stopped && stopped->canceled) return End::kDone;
  if (stopped && stopped->waits) return End::kWaits;
  job.tried += Clock::now() - begin;
  if (stopped && stopped->spent && job.lane != Lane::kLong) return End::kSpent;
  if (stopped) prompt = std::unexpected(std::move(stopped->error));
  if (*prompt) (*prompt)->build_time = job.tried;
  if (*prompt && context.defaults != nullptr)
    ApplyModelDefaults(*context.defaults, job.submit.request, **prompt);
  DropTexts(job.submit.request);
  receivers_.built(PromptBuilt{job.submit.id, std::move(job.submit.request), *std::move(prompt), job.arrived,
                               std::move(job.submit.resume)});
  return End::kDone;
}

Preparation::End Preparation::Describe(const PreparationJob& job, const TryLimits& limits) {
  std::vector<api::Event> events;
  const auto stopped =
      RunBounded(job, limits, [&] { events = DescribePrompt(context_, job.submit.request); });
  if (stopped && stopped->canceled) return End::kDone;
  if (stopped && stopped->spent && job.lane != Lane::kLong) return End::kSpent;
  if (stopped) events = {api::Failed{stopped->error}};
  int64_t had = job.submit.resume.deltas;
  for (api::Event& event : events) {
    if (std::holds_alternative<api::TextDelta>(event) && had-- > 0) continue;
    receivers_.described({job.submit.id, std::move(event)});
  }
  return End::kDone;
}

}  // namespace quire::runner::engine
