// Preparing prompts of the bundled model, with requests that are made to be expensive.

#include "runner/engine/process/preparation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "runner/constraint/output_format.h"
#include "runner/engine/prompt/loaded_model.h"
#include "runner/engine/testing/engine_harness.h"
#include "runner/work/work_budget.h"

namespace quire::runner::engine {
namespace {

using ::testing::HasSubstr;

constexpr auto kMuchTime = std::chrono::hours(1);
constexpr std::array kLight = {Lane::kLight};
constexpr std::array kTries = {Lane::kShort, Lane::kMedium};
constexpr std::array kLong = {Lane::kLong};

api::Request TenantChat(std::string content, std::string tenant = {}) {
  api::Request request;
  request.prompt = api::ChatPrompt{{{"user", std::move(content)}}};
  request.client.party = fair::PartyNamed(tenant);
  return request;
}

api::Request WithSchema(std::string schema) {
  api::Request request = TenantChat("Hello!");
  request.format = {api::OutputFormat::Kind::kSchema, std::move(schema), "format"};
  return request;
}

PreparationJob JobOf(uint64_t id, api::Request request) {
  return {{api::RequestId{id}, std::move(request), {}}, Clock::now()};
}

class Preparing : public ::testing::Test {
 protected:
  Preparing()
      : model_(*Load(kDemoModel, [](float, std::string_view) {})),
        constraints_([this] { return IndexVocabulary(*model_.tokenizer, model_.end_of_generation); },
                     kPlenty) {}

  PromptContext context() {
    return {model_.tokenizer,
            *model_.prompt_template,
            model_.turn_start_token,
            FindFimTokens(*model_.tokenizer),
            model_.model->context_length(),
            model_.format,
            &constraints_};
  }
  api::Error ErrorOf(api::Request request, std::chrono::nanoseconds cpu_time = kMuchTime) {
    const auto built = Prepare(context(), JobOf(1, std::move(request)), {cpu_time});
    if (!built) return {api::ErrorCode::kCancelled, "canceled"};
    return *built ? api::Error{api::ErrorCode::kInternal, "built"} : built->error();
  }

  LoadedModel model_;
  constraint::ConstraintCache constraints_;
};

TEST_F(Preparing, ATextThatNeverFitsIsRefusedByItsBytes) {
  const std::string bytes(size_t{64} << 20, '\xFF');
  api::Request request;
  request.prompt = api::RawPrompt{bytes};
  for (const auto overflow : {api::Overflow::kRefuse, api::Overflow::kTruncate}) {
    request.overflow = overflow;
    const api::Error error = ErrorOf(request);
    EXPECT_EQ(error.code, api::ErrorCode::kContextLengthExceeded) << error.message;
    EXPECT_THAT(error.message, HasSubstr("exceeds the available context size"));
  }
  request.prompt_only = true;
  EXPECT_EQ(ErrorOf(request).code, api::ErrorCode::kTooLarge);
}

TEST_F(Preparing, TokenizingStopsSomeContextsBehindTheFirst) {
  std::string text;
  for (int i = 0; i < 5 * context().context_length; ++i) text += " q";
  api::Request request = TenantChat(text);
  request.overflow = api::Overflow::kRefuse;
  const api::Error error = ErrorOf(request);
  EXPECT_EQ(error.code, api::ErrorCode::kContextLengthExceeded);
  EXPECT_THAT(error.message,
              HasSubstr("request (more than " + std::to_string(4 * context().context_length) + " tokens"));
}

TEST_F(Preparing, EndsWhenItsTimeIsSpent) {
  const api::Error error = ErrorOf(WithSchema(R"({"type":"string","pattern":"(a|b)*a(a|b){24}c"})"), {});
  EXPECT_EQ(error.code, api::ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message, HasSubstr("CPU time"));
}

TEST_F(Preparing, EndsWhenTheRequestIsCanceled) {
  const PreparationJob job = JobOf(1, WithSchema(R"({"type":"string","pattern":"(a|b)*a(a|b){24}c"})"));
  *job.canceled = true;
  EXPECT_FALSE(Prepare(context(), job, {kMuchTime}));
}

TEST_F(Preparing, FormatsAreCompiledForEachTenant) {
  const auto constraint_of = [this](std::string tenant, std::string salt) {
    api::Request request = WithSchema(R"({"type":"integer"})");
    request.client = {.tenant = std::move(tenant), .cache_salt = std::move(salt)};
    return (**Prepare(context(), JobOf(1, std::move(request)), {kMuchTime})).constraint;
  };
  EXPECT_EQ(constraint_of("a", ""), constraint_of("a", ""));
  EXPECT_NE(constraint_of("a", ""), constraint_of("b", ""));
  EXPECT_NE(constraint_of("a", ""), constraint_of("a", "salt"));
}

// A format of some 100 KB, another one for each number below 1,000.
api::Request WithLargeFormat(int number, std::string tenant) {
  api::Request request = TenantChat("Hello!", std::move(tenant));
  request.format = {api::OutputFormat::Kind::kRegex, "[a-z]{" + std::to_string(5000 + number) + "}",
                    "format"};
  return request;
}

// Prompts as they are built, until the test lets go of them: an engine in which nothing moves by itself.
class PromptShelf {
 public:
  void Add(PromptBuilt built) {
    {
      std::lock_guard lock(mutex_);
      built_.push_back(std::move(built));
    }
    changed_.notify_all();
  }
  PromptBuilt Next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !built_.empty(); });
    PromptBuilt first = std::move(built_.front());
    built_.pop_front();
    return first;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<PromptBuilt> built_;
};

class PreparingFormats : public Preparing {
 protected:
  static constexpr size_t kBudget = size_t{4} << 20;

  ~PreparingFormats() override { queue_.Stop(); }
  void Push(uint64_t id, int number, std::string tenant) {
    queue_.Push(JobOf(id, WithLargeFormat(number, std::move(tenant))));
  }
  bool MayBegin() { return formats_.MayBegin(fair::PartyNamed("many")); }
  uint64_t AddNext() {
    held_.push_back(shelf_.Next());
    EXPECT_TRUE(held_.back().prompt.has_value());
    EXPECT_LE(formats_.bytes_in_use(), kBudget);
    return std::to_underlying(held_.back().id);
  }

  constraint::ConstraintCache formats_{
      [this] { return IndexVocabulary(*model_.tokenizer, model_.end_of_generation); }, kBudget};
  PromptContext context_ = [this] {
    PromptContext with_few = context();
    with_few.constraints = &formats_;
    return with_few;
  }();
  PromptShelf shelf_;
  std::deque<PromptBuilt> held_;
  PreparationQueue queue_;
  Preparation preparation_{
      queue_,
      context_,
      kMuchTime,
      {.built = [this](PromptBuilt built) { shelf_.Add(std::move(built)); }, .described = {}}};
};

// Before, each of them had its memory at once.
TEST_F(PreparingFormats, ManyDifferentOnesWaitForMemoryAndNoneForEver) {
  constexpr uint64_t kRequests = 60;
  for (uint64_t id = 1; id <= kRequests; ++id) Push(id, static_cast<int>(id), "many");
  std::vector<uint64_t> built;
  while (MayBegin()) built.push_back(AddNext());
  EXPECT_LT(built.size(), kRequests / 2);
  // Whoever gives one back lets another go on.
  while (built.size() < kRequests) {
    if (MayBegin()) {
      built.push_back(AddNext());
    } else {
      ASSERT_FALSE(held_.empty());
      held_.pop_front();
    }
  }
  held_.clear();
  std::ranges::sort(built);
  EXPECT_EQ(std::ranges::unique(built).begin(), built.end());
  EXPECT_EQ(formats_.bytes_in_use(), 0U);
}

TEST_F(PreparingFormats, OthersAndSharedOnesDoNotWait) {
  for (uint64_t id = 1; id <= 60; ++id) Push(id, static_cast<int>(id), "many");
  while (MayBegin()) AddNext();
  const int used = static_cast<int>(std::to_underlying(held_.front().id));
  Push(101, 0, "other");
  Push(102, used, "many");
  std::set<uint64_t> built;
  while (!built.contains(101) || !built.contains(102)) built.insert(AddNext());
  EXPECT_LT(built.size(), 6U);
  EXPECT_FALSE(MayBegin());
}

TEST_F(PreparingFormats, OneThatWaitsCanBeCanceled) {
  for (uint64_t id = 1; id <= 60; ++id) Push(id, static_cast<int>(id), "many");
  while (MayBegin()) AddNext();
  for (uint64_t id = 1; id <= 60; ++id) queue_.Cancel(api::RequestId{id});
  held_.clear();
  Push(101, 0, "many");
  while (AddNext() != 101) held_.clear();
}

// A text that takes more than a try, and is only counted.
api::Request LongText() {
  std::string text;
  while (text.size() < size_t{12} << 20) text += "It was the best of times, it was the worst of times. ";
  api::Request request;
  request.prompt = api::RawPrompt{std::move(text)};
  request.prompt_only = true;
  return request;
}

TEST_F(Preparing, NobodyWaitsForALongRequestInProgress) {
  PreparationQueue queue;
  std::promise<void> long_done, schema_built, chat_built;
  const std::shared_future<void> schema(schema_built.get_future()), chat(chat_built.get_future());
  const PromptContext shared = context();
  bool described = false;
  // The thread of long requests stays in `described` until the others were built.
  Preparation preparation(queue, shared, kMuchTime,
                          {.built =
                               [&](PromptBuilt built) {
                                 (built.id == api::RequestId{3} ? schema_built : chat_built).set_value();
                               },
                           .described =
                               [&](const api::ipc::RequestEvent&) {
                                 if (std::exchange(described, true)) return;
                                 queue.Push(JobOf(2, LongText()));
                                 queue.Push(JobOf(3, WithSchema(R"({"type":"string"})")));
                                 queue.Push(JobOf(4, TenantChat("Hello!")));
                                 schema.wait();
                                 chat.wait();
                                 queue.Cancel(api::RequestId{2});
                                 long_done.set_value();
                               }});
  queue.Push(JobOf(1, LongText()));
  long_done.get_future().wait();
}

TEST_F(Preparing, TriesOfALongRequestTakeASmallPartOfIt) {
  const TryLimits all{.cpu_time = std::chrono::seconds(1)};
  const auto tried = LimitsOf(Lane::kShort, all).cpu_time + LimitsOf(Lane::kMedium, all).cpu_time;
  EXPECT_LE(tried, all.cpu_time / 8);
  EXPECT_EQ(LimitsOf(Lane::kLong, all).cpu_time, all.cpu_time);
  EXPECT_EQ(LimitsOf(Lane::kLong, all).bytes, all.bytes);
  for (const Lane lane : {Lane::kLight, Lane::kShort, Lane::kMedium}) {
    EXPECT_LE(LimitsOf(lane, all).bytes, all.bytes / 4);
    EXPECT_EQ(LimitsOf(lane, {.cpu_time = std::chrono::nanoseconds(1)}).cpu_time.count(), 1);
  }
}

// What is tried for no time at all goes through every lane.
TEST_F(Preparing, ARequestThatGoesThroughAllLanesIsRefusedOnce) {
  PreparationQueue queue;
  std::promise<api::Error> refused;
  const PromptContext shared = context();
  Preparation preparation(
      queue, shared, -kCpuTimePerToken * shared.context_length,
      {.built = [&](PromptBuilt built) { refused.set_value(built.prompt.error()); }, .described = {}});
  queue.Push(JobOf(1, WithSchema(R"({"type":"string","pattern":"(a|b)*a(a|b){24}c"})")));
  const api::Error error = refused.get_future().get();
  EXPECT_EQ(error.code, api::ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message, HasSubstr("more than 0 ms of CPU time"));
}

// Refused, or built, with this time for each request.
api::Result<void> PrepareIn(const PromptContext& shared, PreparationJob job,
                            std::chrono::nanoseconds cpu_time) {
  PreparationQueue queue;
  std::promise<api::Result<void>> done;
  const Preparation preparation(
      queue, shared, cpu_time - kCpuTimePerToken * shared.context_length,
      {.built =
           [&](PromptBuilt built) {
             done.set_value(built.prompt ? api::Result<void>() : std::unexpected(built.prompt.error()));
           },
       .described = {}});
  queue.Push(std::move(job));
  return done.get_future().get();
}

// The first runner had the format compiled for another request: the next one has to compile it within the
// time of a request that its client has some of the answer of.
TEST_F(Preparing, ARequestThatGoesOnMayHaveToCompileWhatTheFirstRunnerHad) {
  const auto job = [](bool goes_on) {
    PreparationJob made = JobOf(1, WithSchema(R"({"type":"string","pattern":"(a|b)*a(a|b){12}c"})"));
    if (goes_on) made.submit.resume.spent.emplace();
    return made;
  };
  const auto begin = WorkBudget::CpuTime();
  ASSERT_TRUE(Prepare(context(), job(false), {kMuchTime}).value());
  const auto half = (WorkBudget::CpuTime() - begin) / 2;
  EXPECT_TRUE(PrepareIn(context(), job(false), half)) << "it is compiled";
  const auto in_the_next = [&](bool goes_on) {
    constraint::ConstraintCache empty(
        [this] { return IndexVocabulary(*model_.tokenizer, model_.end_of_generation); }, kPlenty);
    PromptContext next = context();
    next.constraints = &empty;
    return PrepareIn(next, job(goes_on), half);
  };
  EXPECT_FALSE(in_the_next(false));
  EXPECT_TRUE(in_the_next(true));
}

TEST_F(Preparing, ATextThatTheClientHasIsNotDescribedAgain) {
  api::Request request = TenantChat("Hello!");
  request.prompt_only = true;
  request.return_prompt_text = true;
  for (const int64_t had : {0, 1}) {
    PreparationJob job = JobOf(1, request);
    job.submit.resume.deltas = had;
    PreparationQueue queue;
    std::promise<void> done;
    int64_t deltas = 0;
    const PromptContext shared = context();
    const Preparation preparation(queue, shared, kMuchTime,
                                  {.built = {}, .described = [&](const api::ipc::RequestEvent& event) {
                                     deltas += std::holds_alternative<api::TextDelta>(event.event) ? 1 : 0;
                                     if (std::holds_alternative<api::Finished>(event.event)) done.set_value();
                                   }});
    queue.Push(std::move(job));
    done.get_future().wait();
    EXPECT_EQ(deltas, 1 - had);
  }
}

TEST(PreparationQueue, KnowsWhatMayBeExpensive) {
  EXPECT_EQ(PreparationQueue::LaneOf(TenantChat("Hello!")), Lane::kLight);
  EXPECT_EQ(PreparationQueue::LaneOf(TenantChat(std::string(PreparationQueue::kLightBytesMax + 1, 'a'))),
            Lane::kMedium);
  api::Request seen = TenantChat("Hello!");
  std::get<api::ChatPrompt>(seen.prompt).messages.back().images = {
      {0, std::make_shared<const std::string>("a bomb may be this short")}};
  EXPECT_EQ(PreparationQueue::LaneOf(seen), Lane::kMedium);
  EXPECT_EQ(PreparationQueue::LaneOf(WithSchema("{}")), Lane::kShort);
  api::Request own = TenantChat("Hello!");
  own.go_template = "{{ .Prompt }}";
  EXPECT_EQ(PreparationQueue::LaneOf(own), Lane::kShort);
}

// A schema is compiled for a call that the model may make, not only for one that it has to make.
TEST(PreparationQueue, ToolsWithASchemaMayBeExpensive) {
  const auto lane_of = [](api::Tool tool, api::ToolChoice choice = api::ToolChoice::kAuto) {
    api::Request request = TenantChat("Hello!");
    std::get<api::ChatPrompt>(request.prompt).tools = {{.name = "other"}, std::move(tool)};
    request.tool_choice = choice;
    return PreparationQueue::LaneOf(request);
  };
  const std::string schema = R"({"type":"object"})";
  EXPECT_EQ(lane_of({.name = "f", .parameters_json = schema}), Lane::kShort);
  EXPECT_EQ(lane_of({.name = "f", .parameters_json = schema, .strict = true}), Lane::kShort);
  EXPECT_EQ(lane_of({.name = "f", .parameters_json = schema, .callable = false}), Lane::kLight);
  EXPECT_EQ(lane_of({.name = "f", .parameters_json = "{}"}), Lane::kLight);
  EXPECT_EQ(lane_of({.name = "f"}), Lane::kLight);
  EXPECT_EQ(lane_of({.name = "f"}, api::ToolChoice::kRequired), Lane::kShort);
}

TEST(PreparationQueue, ServesTheTenantThatUsedLeast) {
  PreparationQueue queue;
  for (uint64_t id = 1; id <= 3; ++id) queue.Push(JobOf(id, TenantChat("Hello!", "busy")));
  const auto first = queue.Pop(kLight);
  EXPECT_EQ(first->submit.id, api::RequestId{1});
  queue.Push(JobOf(4, TenantChat("Hello!", "other")));
  volatile uint64_t work = 0;
  for (int i = 0; i < 10'000'000; ++i) work = work + 1;
  queue.Finish(first->submit.id);
  EXPECT_EQ(queue.Pop(kLight)->submit.id, api::RequestId{4});
  EXPECT_EQ(queue.Pop(kLight)->submit.id, api::RequestId{2});
}

uint64_t PopId(PreparationQueue& queue, std::span<const Lane> lanes) {
  return std::to_underlying(queue.Pop(lanes)->submit.id);
}

// What formats took is charged to who sends texts, too.
TEST(PreparationQueue, AllLanesAreOneAccount) {
  PreparationQueue queue;
  const auto push = [&queue](uint64_t id, const std::string& party) {
    queue.Push(JobOf(id, TenantChat("Hello!", party)));
  };
  api::Request format = WithSchema("{}");
  format.client.party = fair::PartyNamed("busy");
  queue.Push(JobOf(1, std::move(format)));
  push(2, "busy");
  push(3, "other");
  push(4, "other");
  const auto tried = queue.Pop(kTries);
  volatile uint64_t work = 0;
  for (int i = 0; i < 10'000'000; ++i) work = work + 1;
  queue.Finish(tried->submit.id);
  for (const uint64_t id : {3U, 4U, 2U}) {
    EXPECT_EQ(PopId(queue, kLight), id);
    queue.Finish(api::RequestId{id});
  }
}

// A party's own requests: one that costs little passes those that turned out to be expensive.
TEST(PreparationQueue, ATryThatWasNotEnoughGoesBehindFirstTries) {
  PreparationQueue queue;
  for (uint64_t id = 1; id <= 20; ++id) queue.Push(JobOf(id, WithSchema("{}")));
  for (uint64_t id = 1; id <= 20; ++id) {
    auto job = queue.Pop(kTries);
    EXPECT_EQ(job->submit.id, api::RequestId{id});
    EXPECT_EQ(job->lane, Lane::kShort);
    queue.Demote(*std::move(job));
  }
  auto first = queue.Pop(kTries);
  EXPECT_EQ(first->submit.id, api::RequestId{1});
  EXPECT_EQ(first->lane, Lane::kMedium);
  queue.Push(JobOf(21, WithSchema("{}")));
  queue.Push(JobOf(22, TenantChat(std::string(PreparationQueue::kLightBytesMax + 1, 'a'))));
  queue.Demote(*std::move(first));
  EXPECT_EQ(PopId(queue, kTries), 21U);  // behind the try in progress, and before 19 that wait
  EXPECT_EQ(PopId(queue, kTries), 2U);
  const auto all_of_it = queue.Pop(kLong);
  EXPECT_EQ(all_of_it->submit.id, api::RequestId{1});
  EXPECT_EQ(all_of_it->lane, Lane::kLong);
}

TEST(PreparationQueue, ALightRequestThatIsNotOneIsTriedForLonger) {
  PreparationQueue queue;
  queue.Push(JobOf(1, TenantChat("Hello!")));
  queue.Demote(*queue.Pop(kLight));
  EXPECT_EQ(queue.Pop(kTries)->lane, Lane::kMedium);
}

TEST(PreparationQueue, ARequestThatIsCanceledInATryIsNotTriedAgain) {
  PreparationQueue queue;
  queue.Push(JobOf(1, WithSchema("{}")));
  auto job = queue.Pop(kTries);
  queue.Cancel(api::RequestId{1});
  queue.Demote(*std::move(job));
  queue.Push(JobOf(2, WithSchema("{}")));
  EXPECT_EQ(PopId(queue, kTries), 2U);
}

TEST(PreparationQueue, ACanceledRequestIsNotServed) {
  PreparationQueue queue;
  queue.Push(JobOf(1, TenantChat("Hello!")));
  queue.Push(JobOf(2, TenantChat("Hello!")));
  queue.Cancel(api::RequestId{1});
  const auto job = queue.Pop(kLight);
  EXPECT_EQ(job->submit.id, api::RequestId{2});
  EXPECT_FALSE(*job->canceled);
  queue.Cancel(api::RequestId{2});
  EXPECT_TRUE(*job->canceled);
  queue.Finish(api::RequestId{2});
}

TEST_F(Preparing, CountsItsWorkWhereOthersSeeIt) {
  const PreparationJob job = JobOf(1, WithLargeFormat(0, ""));
  EXPECT_TRUE(Prepare(context(), job, {kMuchTime})->has_value());
  EXPECT_GT(*job.checks, 0U);
}

TEST(PreparationQueue, StopEndsTheThreads) {
  PreparationQueue queue;
  queue.Push(JobOf(1, TenantChat("Hello!")));
  queue.Stop();
  EXPECT_FALSE(queue.Pop(kLight));
}

}  // namespace
}  // namespace quire::runner::engine
