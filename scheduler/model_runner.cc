#include "scheduler/model_runner.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cctype>
#include <stdexcept>
#include <utility>
#include <variant>

#include "scheduler/clock.h"

namespace quire::scheduler {
namespace {

constexpr std::chrono::seconds kStartTime{10};

// Copied to every request that waits for the load.
constexpr size_t kErrorBytesMax = size_t{64} << 10;

// Ids that the streams of one runner hold together, at 4 bytes: an answer with which they would be more ends.
constexpr size_t kTokensHeldMax = size_t{64} << 20;

// That an answer to the request may have. A runner has a context of its own where the request's is very
// small.
int64_t TokensMaxOf(const api::Request& request) {
  constexpr int64_t kMargin = 256;
  const api::GenerationParams& params = request.params;
  const int64_t contexts = params.num_ctx > 0 ? api::ipc::kUnlimitedContexts * params.num_ctx : INT32_MAX;
  const int64_t tokens = params.num_predict >= 0 ? params.num_predict : contexts;
  return std::min<int64_t>(tokens, api::ipc::kAnswerTokensMax) + kMargin;
}

// The runner's words, fit for one line of the log.
std::string OneLine(std::string text) {
  std::ranges::replace_if(
      text, [](unsigned char c) { return std::iscntrl(c) != 0; }, ' ');
  return text;
}

}  // namespace

ModelRunner::ModelRunner(RunnerHost host, Job job, std::weak_ptr<Observer> observer)
    : RunnerSession(std::move(host), job.name, {job.path, job.draft_path, job.projector_path}),
      job_(std::move(job)),
      observer_(std::move(observer)),
      load_(job_.load_timeout),
      liveness_(job_.stall_timeout),
      views_(this->host().executor, [this](const api::ipc::ToRunner& message) { Send(message); }) {}

void ModelRunner::Start() {
  Gate gate = host().gate;
  gate.Start(Run(std::static_pointer_cast<ModelRunner>(shared_from_this())));
}

boost::asio::awaitable<void> ModelRunner::Run(std::shared_ptr<ModelRunner> self) {
  try {
    const End end = co_await self->Serve();
    const bool useless = self->state_ != State::kLoaded;
    if (useless && !self->stop_requested()) {
      spdlog::warn("load failed model={} error=\"{}\"", self->job_.name, OneLine(end.why.message));
    }
    self->StartStopping(end);
    co_await self->Shut(useless || end.cause != ExitCause::kRefused);
  } catch (const std::runtime_error& e) {  // its descriptors cannot be watched
    self->StartStopping(
        {ExitCause::kRefused,
         {api::ErrorCode::kUnavailable, std::string("the model runner failed: ") + e.what()}});
    self->Kill();
  }
  if (const auto observer = self->observer_.lock()) observer->OnReaped(*self);
}

// What the bytes of a prefix depend on: the model's files and how they are read. A file of the store is named
// by its content; another one is distinguished from its successors by what the file system says of it.
std::string ModelRunner::SnapshotIdentity() const {
  std::string identity = fmt::format("quantize={} kv={} ", job_.settings.quantize_on_load,
                                     static_cast<int>(job_.settings.kv_cache_type));
  const std::string file = job_.path.filename().string();
  if (file.starts_with("sha256-")) return identity + file;
  return identity + VersionsOf(0);
}

std::vector<std::string> ModelRunner::AddDescriptors(std::vector<api::FileDescriptor>& files) {
  if (!host().snapshots || !job_.settings.prefix_cache) return {};
  auto ends = host().snapshots->Connect(job_.name, SnapshotIdentity());
  if (!ends) return {};
  const int fd = RunnerProcess::kFirstFileFd + static_cast<int>(files.size());
  files.push_back(std::move(ends->socket));
  files.push_back(std::move(ends->memory));
  return {fmt::format("--snapshot-fd={}", fd)};
}

// Returns why the runner has to stop.
boost::asio::awaitable<ModelRunner::End> ModelRunner::Serve() {
  std::optional<End> failed = co_await LoadModel();
  if (stop_reason_) co_return End{ExitCause::kRefused, *stop_reason_};
  if (failed) co_return *std::move(failed);
  state_ = State::kLoaded;
  spdlog::info("loaded model={} runner_pid={} load_ms={:.1f} memory_bytes={} cache_bytes={}", job_.name,
               pid(), std::chrono::duration<double, std::milli>(load_.time()).count(), load_.memory_bytes(),
               load_.cache_bytes());
  if (const auto observer = observer_.lock()) observer->OnLoaded(*this);
  std::optional<End> stalled;
  while (!over() && !stop_requested() && !stalled) stalled = co_await Watch(Time::max());
  if (stop_reason_) co_return End{ExitCause::kRefused, *stop_reason_};
  if (!stalled || over()) stalled = co_await Died("the model runner died: ");
  spdlog::warn("runner died model={} runner_pid={} error=\"{}\"", job_.name, pid(),
               OneLine(stalled->why.message));
  co_return *std::move(stalled);
}

// Nothing when the model is loaded or the session was stopped.
boost::asio::awaitable<std::optional<ModelRunner::End>> ModelRunner::LoadModel() {
  const Time start = Clock::now();
  load_.Start(start);
  const Time deadline = load_.Deadline();
  liveness_.RecordFrame(start);
  const auto refused = [](api::Error why) { return End{ExitCause::kRefused, std::move(why)}; };
  // A program takes its time to start on a busy machine.
  const Time started_by = job_.stall_timeout.count() > 0
                              ? start + std::max<Clock::duration>(job_.stall_timeout, kStartTime)
                              : Time::max();
  auto opened = co_await Open(std::min(deadline, started_by));
  if (!opened && over()) {
    // Before its first message a runner has read nothing of the model and cannot report yet that a signal
    // came from outside.
    const bool by_signal = exit_status() && exit_status()->by_signal;
    co_return End{by_signal ? ExitCause::kKilled : ExitCauseOf(), std::move(opened).error()};
  }
  const bool hangs = !opened && pid() != 0 && Clock::now() < deadline;
  if (hangs) co_return End{ExitCause::kKilled, std::move(opened).error()};
  if (!opened) co_return refused(std::move(opened).error());

  state_ = State::kEstimating;
  Send(api::ipc::LoadModel{.path = job_.path.string(),
                           .files = FilesOf(0),
                           .settings = job_.settings,
                           .go_template = job_.go_template,
                           .names = job_.names,
                           .draft_path = job_.draft_path.string(),
                           .draft_files = FilesOf(1),
                           .projector_path = job_.projector_path.string(),
                           .projector_files = FilesOf(2),
                           .context_min = job_.context_min});
  auto failed = co_await AwaitLoaded();
  load_.End(Clock::now());
  co_return failed;
}

// Until the runner has answered LoadModel. Nothing when it has loaded the model or was stopped.
boost::asio::awaitable<std::optional<ModelRunner::End>> ModelRunner::AwaitLoaded() {
  const auto refused = [](api::Error why) { return End{ExitCause::kRefused, std::move(why)}; };
  const auto answered = [this] { return state_ == State::kLoaded || load_failure_; };
  std::optional<End> stalled;
  while (!answered() && !over() && !stop_requested() && !stalled && Clock::now() < load_.Deadline()) {
    stalled = co_await Watch(load_.Deadline());
  }
  if (over() && !answered()) {
    End died = co_await Died(fmt::format("the model runner died while loading {}: ", job_.name));
    if (!answered()) co_return died;  // a last frame may still say what went wrong
  }
  if (load_failure_) co_return refused(*load_failure_);
  if (state_ == State::kLoaded || stop_requested()) co_return std::nullopt;
  if (stalled) co_return stalled;
  const auto seconds = std::chrono::duration<double>(job_.load_timeout).count();
  co_return refused(
      {api::ErrorCode::kUnavailable, fmt::format("loading {} took longer than {} s", job_.name, seconds)});
}

// A signal from outside is the operator's or, when memory runs out, the kernel's: a request may be the reason
// at most indirectly.
ExitCause ModelRunner::ExitCauseOf() const {
  const auto& exit = exit_status();
  return exit && exit->external ? ExitCause::kKilled : ExitCause::kCrashed;
}

std::optional<DeathTime> ModelRunner::death_time() const {
  if (stalled() || !over()) return liveness_.hung();
  return DeathTime{over_since(), over_since()};
}

boost::asio::awaitable<ModelRunner::End> ModelRunner::Died(std::string what) {
  const std::string cause = co_await Cause();
  co_return End{ExitCauseOf(), {api::ErrorCode::kRunnerDied, what + cause}};
}

// Waits for a change, `until` or a stall, whichever comes first; the stall, if it is one.
boost::asio::awaitable<std::optional<ModelRunner::End>> ModelRunner::Watch(Time until) {
  constexpr auto kReadingTime = std::chrono::milliseconds(500);
  co_await changed().Wait(std::min(until, liveness_.StalledAt()));
  if (Clock::now() < liveness_.StalledAt()) co_return std::nullopt;
  // Frames that came while this process itself did not run are read first.
  co_await changed().Wait(Clock::now() + kReadingTime);
  if (Clock::now() < liveness_.StalledAt() || over() || stop_requested()) co_return std::nullopt;
  liveness_.RecordHang();
  const double seconds = std::chrono::duration<double>(job_.stall_timeout).count();
  const bool silent = liveness_.IsSilent(Clock::now());
  co_return End{silent ? ExitCause::kKilled : ExitCause::kCrashed,
                {api::ErrorCode::kRunnerDied, fmt::format("the model runner {} for {} s and was killed",
                                                          silent ? "sent no heartbeat" : "hung", seconds)}};
}

void ModelRunner::StartStopping(const End& end) {
  state_ = State::kStopping;
  liveness_.EndService();
  views_.End();
  const auto requests = std::exchange(requests_, {});
  tokens_held_ = 0;
  if (const auto observer = observer_.lock()) return observer->OnStopping(*this, end.cause, end.why);
  for (const auto& [id, request] : requests) request.stream->Fail(end.why);
}

void ModelRunner::Stop(api::Error why, bool at_once) {
  if (!stop_reason_) stop_reason_ = std::move(why);
  RunnerSession::Stop(at_once);
}

// ---- requests ----

api::Result<void> ModelRunner::Submit(api::RequestId id, const api::Request& request,
                                      const api::ipc::Resume& resume, std::shared_ptr<EventStream> stream) {
  stream->runner_pid = pid();
  stream->times.Sent(Clock::now());
  stream->events.set_tokens_max(TokensMaxOf(request));
  const auto served = requests_.emplace(id, Served{std::move(stream)}).first;
  CountTokens(served->second);
  auto sent = link()->TrySend({id, request, resume});
  if (!sent) Remove(served);
  return sent;
}

void ModelRunner::Remove(Requests::iterator request) {
  tokens_held_ -= request->second.tokens_held;
  requests_.erase(request);
}

void ModelRunner::CountTokens(Served& request) {
  const size_t held = request.stream->events.tokens_held();
  tokens_held_ += held - std::exchange(request.tokens_held, held);
}

void ModelRunner::OnRoom() {
  if (const auto observer = observer_.lock()) observer->OnRoom();
}

void ModelRunner::GiveCredit(api::RequestId id, int32_t deltas) {
  if (requests_.contains(id)) Send(api::ipc::Credit{id, deltas});
}

bool ModelRunner::Cancel(api::RequestId id) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return false;
  Remove(found);
  Send(api::ipc::Cancel{id});
  return true;
}

// ---- frames ----

api::Result<void> ModelRunner::OnRunnerMessage(api::ipc::ToDaemon message) {
  liveness_.RecordFrame(Clock::now());
  if (const auto* heartbeat = std::get_if<api::ipc::Heartbeat>(&message)) {
    liveness_.Record(*heartbeat);
    return {};
  }
  if (auto* event = std::get_if<api::ipc::RequestEvent>(&message)) return OnRequestEvent(std::move(*event));
  if (const auto* estimate = std::get_if<api::ipc::MemoryEstimate>(&message))
    return HandleMemoryEstimate(*estimate);
  if (auto* loaded = std::get_if<api::ipc::Loaded>(&message)) return OnLoadResult(std::move(*loaded));
  if (auto* engine = std::get_if<api::ipc::EngineInspected>(&message)) {
    return views_.HandleEngine(std::move(*engine));
  }
  if (auto* cache = std::get_if<api::ipc::CacheInspected>(&message)) {
    return views_.HandleCache(std::move(*cache));
  }
  if (auto* failed = std::get_if<api::ipc::LoadFailed>(&message)) {
    if (!Loads() || load_failure_) return ProtocolError("unexpected LoadFailed");
    if (failed->error.message.size() > kErrorBytesMax) return ProtocolError("error message too long");
    load_failure_ = std::move(failed->error);
    changed().Notify();
    return {};
  }
  if (auto* progress = std::get_if<api::ipc::LoadProgress>(&message)) {
    load_.Record(std::move(*progress));
    return {};
  }
  return ProtocolError("unexpected message");
}

api::Result<void> ModelRunner::HandleMemoryEstimate(const api::ipc::MemoryEstimate& estimate) {
  if (state_ != State::kEstimating || load_failure_) return ProtocolError("MemoryEstimate without a load");
  constexpr int64_t kBytesMax = int64_t{1} << 60;
  for (const int64_t bytes :
       {estimate.weight_bytes, estimate.cache_bytes, estimate.cache_min_bytes, estimate.scratch_bytes}) {
    if (bytes < 0 || bytes > kBytesMax) return ProtocolError("implausible size in MemoryEstimate");
  }
  if (estimate.cache_min_bytes < 1 || estimate.cache_min_bytes > estimate.cache_bytes) {
    return ProtocolError("MemoryEstimate without a cache size");
  }
  load_.AwaitMemory({.fixed_bytes = estimate.weight_bytes + estimate.scratch_bytes,
                     .cache_bytes = estimate.cache_bytes,
                     .cache_min_bytes = estimate.cache_min_bytes},
                    Clock::now());
  state_ = State::kAwaitingMemory;
  changed().Notify();
  if (const auto observer = observer_.lock()) observer->OnMemoryEstimate(*this, load_.estimate());
  return {};
}

void ModelRunner::ApproveLoad(int64_t cache_bytes) {
  if (state_ != State::kAwaitingMemory) return;
  load_.GrantMemory(cache_bytes, Clock::now());
  state_ = State::kLoading;
  Send(api::ipc::LoadApproved{.cache_bytes = cache_bytes});
  changed().Notify();
}

api::Result<void> ModelRunner::OnLoadResult(api::ipc::Loaded loaded) {
  if (state_ != State::kLoading || load_failure_) return ProtocolError("unexpected Loaded");
  const api::ipc::ModelInfo& info = loaded.info;
  if (info.context_length < 0 || info.num_ctx < 0 || info.weight_bytes < 0 || info.cache_bytes < 0) {
    return ProtocolError("negative size in Loaded");
  }
  info_ = std::move(loaded.info);
  liveness_.StartService(Clock::now());
  state_ = State::kLoaded;
  changed().Notify();
  return {};
}

api::Result<void> ModelRunner::OnRequestEvent(api::ipc::RequestEvent message) {
  const auto found = requests_.find(message.id);
  if (found == requests_.end()) return {};  // canceled while this was on its way
  const std::shared_ptr<EventStream> stream = found->second.stream;
  const bool is_ready = std::holds_alternative<api::PromptReady>(message.event);
  const auto* failed = std::get_if<api::Failed>(&message.event);
  // In place of an event that is too large for a frame, or not valid: the runner may compute more of the
  // answer.
  const bool is_cut = failed != nullptr && (failed->error.code == api::ErrorCode::kTooLarge ||
                                            failed->error.code == api::ErrorCode::kInternal);
  const bool is_end = std::holds_alternative<api::Finished>(message.event) || (failed != nullptr && !is_cut);
  const bool had_progress = stream->events.progressed();
  const bool only_failed = failed != nullptr && !had_progress;  // the runner may be stuck in what it gives up
  stream->times.Record(message.event, Clock::now());
  if (auto pushed = stream->events.Push(std::move(message.event)); !pushed) return pushed;
  CountTokens(found->second);
  if (tokens_held_ > kTokensHeldMax) {
    stream->Fail({api::ErrorCode::kTooLarge,
                  fmt::format("the model's answers have more than {} tokens together", kTokensHeldMax)});
  }
  stream->changed.Notify();
  const auto observer = observer_.lock();
  if (is_ready && observer) observer->OnRequestStarted(message.id);
  // One whose client takes nothing is not computed, and shows nothing more.
  const bool progress = stream->events.progressed() || !stream->events.has_credit();
  if (progress && !had_progress && !only_failed && observer) observer->OnRequestProgress(message.id);
  if (stream->events.ended()) {
    Remove(found);
    if (!is_end) Send(api::ipc::Cancel{message.id});  // the runner has not ended it
    const bool got_through = is_end && !only_failed;
    if (observer && got_through) observer->OnRequestEnded(message.id);
    if (observer && !got_through) observer->OnRequestAbandoned(message.id);
  }
  return {};
}

}  // namespace quire::scheduler
