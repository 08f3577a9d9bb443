#include "scheduler/testing/simulated_runner.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <utility>
#include <variant>

#include "api/base/request_memory.h"

namespace quire::scheduler::simulation {
namespace {

namespace ipc = api::ipc;
using Milliseconds = World::Milliseconds;

constexpr int64_t kMegabyte = int64_t{1} << 20;

}  // namespace

std::string Script::Text() const { return fmt::format("{} {} {}", number, tokens, deadly_at); }

std::optional<Script> Script::Read(std::string_view text) {
  Script script;
  const std::string line(text);
  if (std::sscanf(line.c_str(), "%u %d %d", &script.number, &script.tokens, &script.deadly_at) != 3)
    return std::nullopt;
  return script;
}

api::TokenId TokenOf(uint32_t number, int64_t index) {
  const uint64_t mixed = (uint64_t{number} * 1'000'003 + static_cast<uint64_t>(index)) * 0x9E3779B97F4A7C15U;
  return static_cast<api::TokenId>(mixed >> 44U);
}

ipc::MemoryEstimate EstimateOf(const std::string& model) {
  const int64_t size = 10 + 10 * (model.empty() ? 0 : model.front() - 'a');
  return {.weight_bytes = (size - 2) * kMegabyte,
          .scratch_bytes = 2 * kMegabyte,
          .cache_bytes = 20 * kMegabyte,
          .cache_min_bytes = 4 * kMegabyte};
}

SimulatedRunner::SimulatedRunner(World& world, const boost::asio::any_io_executor& executor, pid_t pid,
                                 std::string model, boost::asio::local::stream_protocol::socket& daemon)
    : world_(world), pid_(pid), model_(std::move(model)), port_(daemon), exited_(executor) {
  stubborn_ = world_.faults().stubborn && world_.OneIn(3);
  Later([this] { Begin(); });
}

// Runs unless the process is gone by then; while it is stopped nothing of it runs.
void SimulatedRunner::Later(std::function<void()> what) {
  world_.After(world_.Delay(), [this, here = std::weak_ptr(here_), what = std::move(what)] {
    if (here.expired() || dying_ || exit_ || stopped_) return;
    what();
  });
}

void SimulatedRunner::Begin() {
  Send(ipc::Hello{.version = ipc::kVersion, .pid = pid_});
  SendHeartbeat();
}

void SimulatedRunner::SendHeartbeat() {
  if (!circles_ && loaded_) ++progress_;
  Send(ipc::Heartbeat{.progress = progress_});
  world_.After(Milliseconds(1000), [this, here = std::weak_ptr(here_)] {
    if (!here.expired() && !dying_ && !exit_ && !stopped_) SendHeartbeat();
  });
}

void SimulatedRunner::Send(ipc::ToDaemon message) {
  std::vector<ipc::ToDaemon> messages;
  messages.push_back(std::move(message));
  port_.Send(std::move(messages));
}

void SimulatedRunner::CountFault() {
  doomed_ = true;
  world_.CountFault(model_);
}

void SimulatedRunner::Signal(int signal) {
  if (signal == SIGTERM && (stubborn_ || stopped_)) return;
  Die({.by_signal = true, .value = signal, .external = true});
}

void SimulatedRunner::Die(ExitStatus status) {
  if (dying_ || exit_) return;
  dying_ = true;
  const auto end = [this, here = std::weak_ptr(here_)](std::function<void()> what) {
    world_.After(Milliseconds(world_.Below(40)), [here, what = std::move(what)] {
      if (!here.expired()) what();
    });
  };
  end([this] { CloseLink(); });
  end([this, status] {
    exit_ = status;
    exited_.Notify();
  });
}

void SimulatedRunner::ReadLink() {
  if (!port_.open() || dying_ || exit_ || stopped_) return;
  const RunnerPort::Received received = port_.Receive();
  if (received.closed) return Die({.by_signal = false, .value = 0});  // as a runner does whose daemon is gone
  for (const ipc::ToRunner& message : received.messages) On(message);
}

bool SimulatedRunner::LoadGoesWrong() {
  if (!world_.faults().load_failures || !world_.OneIn(5)) return false;
  CountFault();
  switch (world_.Below(4)) {
    case 0:
      Later([this] { Send(ipc::LoadFailed{{api::ErrorCode::kBadModel, "a simulated failure"}}); });
      return true;
    case 1:
      Later([this] { Die({.by_signal = true, .value = SIGABRT}); });
      return true;
    case 2:
      Later([this] { Die({.by_signal = true, .value = SIGKILL, .external = true}); });
      return true;
    default:
      return true;  // it loads without end
  }
}

void SimulatedRunner::On(const ipc::ToRunner& message) {
  if (std::holds_alternative<ipc::LoadModel>(message)) {
    if (!LoadGoesWrong()) Later([this] { Send(EstimateOf(model_)); });
  } else if (const auto* approved = std::get_if<ipc::LoadApproved>(&message)) {
    const ipc::MemoryEstimate estimate = EstimateOf(model_);
    if (approved->cache_bytes < estimate.cache_min_bytes)
      world_.Break("a cache that is too small is granted");
    memory_bytes_ = estimate.weight_bytes + estimate.scratch_bytes + approved->cache_bytes;
    if (LoadGoesWrong()) return;
    Later([this, cache_bytes = approved->cache_bytes] {
      ipc::Loaded loaded;
      loaded.info = {.architecture = "simulated",
                     .context_length = 8192,
                     .num_ctx = 8192,
                     .parameters = 1,
                     .weight_bytes = EstimateOf(model_).weight_bytes,
                     .cache_bytes = cache_bytes};
      loaded_ = true;
      Send(loaded);
    });
  } else if (const auto* submit = std::get_if<ipc::Submit>(&message)) {
    OnSubmit(*submit);
  } else if (const auto* credit = std::get_if<ipc::Credit>(&message)) {
    const auto found = answers_.find(credit->id);
    if (found == answers_.end()) return;
    const bool waits = found->second.credit == 0;
    found->second.credit += credit->deltas;
    if (waits) Later([this, id = credit->id] { Continue(id); });
  } else if (const auto* cancel = std::get_if<ipc::Cancel>(&message)) {
    answers_.erase(cancel->id);
  } else if (std::holds_alternative<ipc::Shutdown>(message)) {
    if (!stubborn_) Later([this] { Die({.by_signal = false, .value = 0}); });
  } else {
    world_.Break("the scheduler sent an unexpected message");
  }
}

// The tokens before, but for the last one, are those that the runners before computed.
void SimulatedRunner::CheckResume(const ipc::Submit& submit, const Script& script) {
  const ipc::Resume& resume = submit.resume;
  const int64_t known = std::max<int64_t>(resume.deltas - 1, 0);
  bool right = std::ssize(resume.tokens) == known && resume.credit >= 0;
  for (int64_t i = 0; right && i < known; ++i) {
    right = resume.tokens[static_cast<size_t>(i)] == TokenOf(script.number, i);
  }
  if (!right) world_.Break("a request is resumed with other tokens");
}

void SimulatedRunner::OnSubmit(const ipc::Submit& submit) {
  const auto* raw = std::get_if<api::RawPrompt>(&submit.request.prompt);
  const auto script = raw != nullptr ? Script::Read(raw->text) : std::nullopt;
  if (!script) return world_.Break("a request changed on its way");
  if (!loaded_) world_.Break("a request for a model that is not loaded");
  if (!seen_.insert(submit.id).second) world_.Break("a request was submitted twice to one runner");
  if (submit.request.params.seed != script->number) world_.Break("a request was resumed with another seed");
  if (!world_.InOrder(model_, submit.id, submit.request.client))
    world_.Break("a younger request was admitted before an older one");
  CheckResume(submit, *script);
  answers_[submit.id] = {.script = *script, .next = submit.resume.deltas, .credit = submit.resume.credit};
  Later([this, id = submit.id] {
    if (answers_.contains(id)) Start(id);
  });
}

void SimulatedRunner::Start(api::RequestId id) {
  if (!answers_.contains(id)) return;
  Send(ipc::RequestEvent{id, api::PromptReady{.prompt_tokens = 3, .cached_tokens = 0, .miss = {}}});
  Continue(id);
}

// The next tokens, as far as the credit goes.
void SimulatedRunner::Continue(api::RequestId id) {
  const auto found = answers_.find(id);
  if (found == answers_.end() || circles_) return;
  Answer& answer = found->second;
  const Script& script = answer.script;
  std::vector<ipc::ToDaemon> events;  // sent at once
  for (uint32_t left = 1 + world_.Below(16); left > 0 && answer.next < script.tokens; --left) {
    if (answer.next == script.deadly_at) {
      port_.Send(std::move(events));
      CountFault();
      return Die({.by_signal = true, .value = SIGSEGV});
    }
    if (answer.credit == 0) return port_.Send(std::move(events));
    --answer.credit;
    ipc::RequestEvent event{id,
                            api::TextDelta{.text = std::to_string(answer.next), .logprobs = {}, .tokens = 1}};
    std::get<api::TextDelta>(event.event).token_ids.push_back(TokenOf(script.number, answer.next++));
    events.emplace_back(std::move(event));
  }
  const bool ends = answer.next >= script.tokens;
  if (ends) {
    api::Finished finished;
    finished.usage.output_tokens = script.tokens;
    events.emplace_back(ipc::RequestEvent{id, finished});
    answers_.erase(found);
  }
  port_.Send(std::move(events));
  if (!ends) Later([this, id] { Continue(id); });
}

}  // namespace quire::scheduler::simulation
