#include "scheduler/model_runner.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cctype>
#include <exception>
#include <utility>
#include <variant>

namespace quire::scheduler {
namespace {

using Clock = std::chrono::steady_clock;

// Copied to every request that waits for the load.
constexpr size_t kErrorBytesMax = size_t{64} << 10;

// The runner's words, fit for one line of the log.
std::string OneLine(std::string text) {
  std::ranges::replace_if(
      text, [](unsigned char c) { return std::iscntrl(c) != 0; }, ' ');
  return text;
}

std::unexpected<api::Error> Breach(std::string what) {
  return api::Fail(api::ErrorCode::kRunnerDied, std::move(what));
}

}  // namespace

ModelRunner::ModelRunner(RunnerHost host, Job job, std::weak_ptr<Owner> owner)
    : RunnerSession(std::move(host), job.name), job_(std::move(job)), owner_(std::move(owner)) {}

void ModelRunner::Start() {
  Gate gate = host().gate;
  gate.Start(Run(std::static_pointer_cast<ModelRunner>(shared_from_this())));
}

boost::asio::awaitable<void> ModelRunner::Run(std::shared_ptr<ModelRunner> self) {
  try {
    const api::Error why = co_await self->Serve();
    const bool useless = self->state_ != State::kLoaded;
    if (useless && !self->stop_asked()) {
      spdlog::warn("load failed model={} error=\"{}\"", self->job_.name, OneLine(why.message));
    }
    self->BeginEnding(why);
    co_await self->Shut(useless);
  } catch (const std::exception& e) {
    self->BeginEnding({api::ErrorCode::kUnavailable, std::string("the model runner failed: ") + e.what()});
    self->Kill();
  }
  if (const auto owner = self->owner_.lock()) owner->OnGone(*self);
}

// Returns why the runner is to end.
boost::asio::awaitable<api::Error> ModelRunner::Serve() {
  const Time start = Clock::now();
  if (auto loaded = co_await LoadModel(); !loaded) {
    co_return stop_reason_ ? *stop_reason_ : std::move(loaded).error();
  }
  state_ = State::kLoaded;
  spdlog::info("loaded model={} runner_pid={} load_ms={:.1f}", job_.name, pid(),
               std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  if (const auto owner = owner_.lock()) owner->OnLoaded(*this);
  while (!over() && !stop_asked()) co_await changed().Wait();
  if (stop_reason_) co_return *stop_reason_;
  const std::string cause = co_await Cause();
  spdlog::warn("runner ended model={} runner_pid={} error=\"{}\"", job_.name, pid(), OneLine(cause));
  co_return api::Error{api::ErrorCode::kRunnerDied, "the model runner ended: " + cause};
}

boost::asio::awaitable<api::Result<void>> ModelRunner::LoadModel() {
  const auto timeout = job_.load_timeout;
  const Time start = Clock::now();
  const bool bounded = timeout > timeout.zero() && timeout < Time::max() - start;
  const Time deadline = bounded ? start + timeout : Time::max();
  if (auto opened = co_await Open(deadline); !opened) co_return std::unexpected(std::move(opened).error());

  state_ = State::kLoading;
  Send(api::ipc::LoadModel{.path = job_.path.string(),
                           .num_ctx = 0,
                           .threads = job_.threads,
                           .cache_bytes = job_.cache_bytes,
                           .reuse_prefixes = job_.reuse_prefixes});
  const auto answered = [this] { return state_ != State::kLoading || load_failure_; };
  while (!answered() && !over() && !stop_asked() && Clock::now() < deadline)
    co_await changed().Wait(deadline);
  if (over() && !answered()) {
    const std::string cause = co_await Cause();  // a last frame may still say what went wrong
    if (!answered()) {
      co_return api::Fail(api::ErrorCode::kRunnerDied,
                          fmt::format("the model runner ended while it loaded {}: {}", job_.name, cause));
    }
  }
  if (load_failure_) co_return std::unexpected(*load_failure_);
  if (state_ == State::kLoaded) co_return api::Result<void>();
  const auto seconds = std::chrono::duration<double>(timeout).count();
  co_return api::Fail(api::ErrorCode::kUnavailable,
                      fmt::format("loading {} took longer than {} s", job_.name, seconds));
}

void ModelRunner::BeginEnding(const api::Error& why) {
  state_ = State::kEnding;
  const auto requests = std::exchange(requests_, {});
  for (const auto& [id, stream] : requests) {
    stream->events.Fail(why);
    stream->changed.Notify();
  }
  if (const auto owner = owner_.lock()) owner->OnEnding(*this, why);
}

void ModelRunner::Stop(api::Error why, bool at_once) {
  if (!stop_reason_) stop_reason_ = std::move(why);
  RunnerSession::Stop(at_once);
}

// ---- requests ----

api::Result<std::shared_ptr<EventStream>> ModelRunner::Submit(api::RequestId id, api::Request request) {
  std::string frame = api::ipc::Encode(api::ipc::ToRunner(api::ipc::Submit{id, std::move(request)}));
  if (frame.size() > api::ipc::kHeaderBytes + api::ipc::kFrameBytesMax) {
    return api::Fail(
        api::ErrorCode::kTooLarge,
        fmt::format("the request is larger than {} bytes in the runner's form", api::ipc::kFrameBytesMax));
  }
  if (!link()->HasRoomFor(frame.size())) {
    return api::Fail(api::ErrorCode::kOverloaded,
                     "server busy, please try again.  the model runner is behind");
  }
  auto stream = std::make_shared<EventStream>(host().executor);
  requests_.emplace(id, stream);
  link()->Send(std::move(frame));
  return stream;
}

void ModelRunner::GiveCredit(api::RequestId id, int32_t deltas) {
  if (requests_.contains(id)) Send(api::ipc::Credit{id, deltas});
}

void ModelRunner::Cancel(api::RequestId id) {
  if (requests_.erase(id) == 0) return;
  Send(api::ipc::Cancel{id});
  if (const auto owner = owner_.lock()) owner->OnRequestEnded(id);
}

// ---- frames ----

api::Result<void> ModelRunner::OnRunnerMessage(api::ipc::ToDaemon message) {
  if (auto* event = std::get_if<api::ipc::RequestEvent>(&message)) return OnRequestEvent(std::move(*event));
  if (auto* loaded = std::get_if<api::ipc::Loaded>(&message)) return OnLoadResult(std::move(*loaded));
  if (auto* failed = std::get_if<api::ipc::LoadFailed>(&message)) {
    if (state_ != State::kLoading || load_failure_) return Breach("LoadFailed without a load");
    if (failed->error.message.size() > kErrorBytesMax) return Breach("an error of endless length");
    load_failure_ = std::move(failed->error);
    changed().Notify();
    return {};
  }
  if (std::holds_alternative<api::ipc::Beat>(message) ||
      std::holds_alternative<api::ipc::LoadProgress>(message)) {
    return {};
  }
  return Breach("a frame that nobody asked for");
}

api::Result<void> ModelRunner::OnLoadResult(api::ipc::Loaded loaded) {
  if (state_ != State::kLoading || load_failure_) return Breach("Loaded without a load");
  const api::ipc::ModelInfo& info = loaded.info;
  if (info.context_length < 0 || info.num_ctx < 0 || info.weight_bytes < 0 || info.cache_bytes < 0) {
    return Breach("a negative size in Loaded");
  }
  info_ = std::move(loaded.info);
  state_ = State::kLoaded;
  changed().Notify();
  return {};
}

api::Result<void> ModelRunner::OnRequestEvent(api::ipc::RequestEvent message) {
  const auto found = requests_.find(message.id);
  if (found == requests_.end()) return {};  // cancelled while this was on its way
  const std::shared_ptr<EventStream> stream = found->second;
  const bool is_ready = std::holds_alternative<api::PromptReady>(message.event);
  if (auto pushed = stream->events.Push(std::move(message.event)); !pushed) return pushed;
  stream->changed.Notify();
  const auto owner = owner_.lock();
  if (is_ready && owner) owner->OnRequestStarted(message.id);
  if (stream->events.ended()) {
    requests_.erase(found);
    if (owner) owner->OnRequestEnded(message.id);
  }
  return {};
}

}  // namespace quire::scheduler
