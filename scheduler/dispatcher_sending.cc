// Requests on their way to runners: those that a plan admits are sent in slices, since encoding a large one
// takes milliseconds of the I/O thread.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <memory>
#include <string>
#include <utility>

#include "api/base/random_id.h"
#include "api/base/request_memory.h"
#include "api/base/text_bounds.h"
#include "scheduler/dispatcher_impl.h"

namespace quire::scheduler {
namespace {

// The bytes of requests that are encoded in one go, unless one alone has more.
constexpr size_t kSliceBytes = size_t{1} << 20;
constexpr size_t kRequestBytes = 1024;  // beside its texts

// A seed of the daemon's own choosing: the request can then be repeated.
int64_t DrawSeed() { return static_cast<int64_t>(api::RandomBits() & static_cast<uint64_t>(INT64_MAX)); }

}  // namespace

void Dispatcher::Impl::RequestSending() {
  if (sending_requested_) return;
  sending_requested_ = true;
  boost::asio::post(executor_, [weak = weak_from_this()] {
    const Self self = weak.lock();
    if (!self) return;
    self->sending_requested_ = false;
    self->SendAdmitted();
  });
}

Dispatcher::Impl::RequestSize Dispatcher::Impl::SizeOf(const api::Request& request) {
  const size_t format = request.format ? request.format->text.size() : 0;
  const size_t texts = api::TextBytes(request.prompt);
  return {
      .texts = texts,
      .frame = kRequestBytes + texts + api::ImageBytes(request.prompt) + request.go_template.size() + format,
      .memory = api::MemoryBytes(request)};
}

void Dispatcher::Impl::SendAdmitted() {
  std::deque<api::RequestId> without_room;
  Delayed delayed;
  size_t left = kSliceBytes;
  for (; !unsent_.empty() && left > 0; unsent_.pop_front()) {
    const api::RequestId id = unsent_.front();
    const Unsent unsent = FindUnsent(id);
    if (AwaitsPreparation(unsent, delayed)) {
      without_room.push_back(id);
      continue;
    }
    const size_t bytes = unsent.size.frame;
    if (bytes > left && left < kSliceBytes) break;
    if (Admit(id)) {
      left -= std::min(bytes, left);
    } else {
      without_room.push_back(id);
    }
  }
  if (!unsent_.empty()) RequestSending();
  unsent_.insert(unsent_.begin(), without_room.begin(), without_room.end());
}

void Dispatcher::Impl::OnRoom() {
  if (!unsent_.empty()) RequestSending();
}

// A size of 0: there is nothing to encode.
Dispatcher::Impl::Unsent Dispatcher::Impl::FindUnsent(api::RequestId id) const {
  if (const auto found = running_.find(id); found != running_.end()) {
    const Running& running = found->second;
    return {running.spec.key, running.request.client.Party(), running.size};
  }
  const auto found = pending_.find(id);
  if (found == pending_.end()) return {};
  const Pending& pending = *found->second;
  return {pending.spec.key, pending.party, pending.size};
}

// A large request waits while its runner has enough of them to prepare, and so do those of its party behind
// it: one that is less large must not pass it again and again.
bool Dispatcher::Impl::AwaitsPreparation(const Unsent& unsent, Delayed& delayed) const {
  if (unsent.size.memory <= limits_.preparation.small) return false;
  const std::pair owner{unsent.key, unsent.party};
  if (delayed.contains(owner)) return true;
  const ModelRunner& runner = *runners_.at(std::string(unsent.key));
  if (runner.MayPrepare(unsent.size.memory, std::string(unsent.party))) return false;
  delayed.insert(owner);
  return true;
}

// The runner of the model takes nothing more: the scheduler admits them again.
void Dispatcher::Impl::DropUnsent(const std::string& key) {
  std::erase_if(unsent_, [&](api::RequestId id) {
    if (const auto running = running_.find(id); running != running_.end())
      return running->second.spec.key == key;
    const auto pending = pending_.find(id);
    return pending == pending_.end() || pending->second->spec.key == key;
  });
}

// Sends the request to its loaded model, for the first time or again. False: there is no room yet.
bool Dispatcher::Impl::Admit(api::RequestId id) {
  if (const auto running = running_.find(id); running != running_.end()) return Resume(id, running->second);
  const auto found = pending_.find(id);
  if (found == pending_.end()) return true;  // its client has left
  const std::shared_ptr<Pending> pending = found->second;
  ModelRunner& runner = *runners_.at(pending->spec.key);
  api::Result<std::unique_ptr<TokenStream>> answer = SubmitTo(runner, *pending);
  if (!answer || !*answer) {
    scheduler_.Remove(id, Clock::now());
    RequestPlan();
  }
  pending_.erase(id);
  Answer(*pending, std::move(answer));
  return true;
}

// What the model's next runner must hold of one sequence: no request that a runner has started gets another
// context.
int32_t Dispatcher::Impl::ContextNeeded(const std::string& key) const {
  int32_t needed = 0;
  for (const auto& [id, running] : running_) {
    if (running.spec.key == key && running.stream->times.spent()) needed = std::max(needed, running.context);
  }
  return needed;
}

// Once a runner has started the request, its context is what that runner's caches held, whatever the next
// one's hold.
void Dispatcher::Impl::DecideContext(Running& running, const api::ipc::ModelInfo& info) const {
  if (running.stream->times.spent()) return;
  int32_t& num_ctx = running.request.params.num_ctx;
  num_ctx = EffectiveContext(running.requested_num_ctx, limits_.default_num_ctx, info);
  running.context = info.num_ctx > 0 ? std::min(num_ctx, info.num_ctx) : num_ctx;
}

// Why the texts cannot fit the context; nothing where that is not known. `info`: null while the model is not
// loaded; then the context is no longer than what the request asks for.
std::optional<api::Error> Dispatcher::Impl::CheckTexts(const api::Request& request, const RequestSize& size,
                                                       const api::ipc::ModelInfo* info) const {
  const int32_t asked = request.params.num_ctx;
  if (request.prompt_only || (info == nullptr && asked < 1)) return std::nullopt;
  static const api::ipc::ModelInfo kUnknown;
  const api::ipc::ModelInfo& known = info == nullptr ? kUnknown : *info;
  const int32_t num_ctx = EffectiveContext(asked, limits_.default_num_ctx, known);
  const api::TextBounds bounds = api::TextBoundsFor(num_ctx, request.overflow);
  if (size.texts <= bounds.bytes) return std::nullopt;
  return api::WithContextOptions(api::ExceedsBounds(bounds, num_ctx), num_ctx, known.context_length,
                                 known.num_ctx);
}

// Null for a bare load.
api::Result<std::unique_ptr<TokenStream>> Dispatcher::Impl::SubmitTo(ModelRunner& runner, Pending& pending) {
  const int32_t asked = pending.request ? pending.request->params.num_ctx : 0;
  const int32_t num_ctx = EffectiveContext(asked, limits_.default_num_ctx, runner.info());
  LastUse& use = last_use_[runner.key()];
  if (pending.request || use.num_ctx == 0) use.num_ctx = num_ctx;
  use.spec = pending.spec;
  if (!pending.request) return nullptr;
  // A text that cannot fit would hold up the link to the runner, and with it the answers of others.
  if (auto misfit = CheckTexts(*pending.request, pending.size, &runner.info()))
    return std::unexpected(*std::move(misfit));
  if (!runner.HasRoomFor(pending.size.frame, pending.party)) {
    return api::Fail(api::ErrorCode::kOverloaded, RunnerLink::kBehind);
  }

  auto stream = std::make_shared<EventStream>(executor_);
  Running running{pending.spec, *std::move(pending.request), stream, pending.size};
  running.requested_num_ctx = asked;
  running.requested_seed = running.request.params.seed;
  if (running.requested_seed < 0) running.request.params.seed = DrawSeed();
  DecideContext(running, runner.info());
  if (auto sent = runner.Submit(pending.id, running.request, running.size.memory,
                                {.context = running.context}, stream);
      !sent) {
    return std::unexpected(std::move(sent).error());
  }
  running_.emplace(pending.id, std::move(running));
  RecordSent(pending.id);
  return std::make_unique<RunnerTokenStream>(weak_from_this(), pending.id, std::move(stream),
                                             Clock::now() - pending.arrived);
}

void Dispatcher::Impl::RecordSent(api::RequestId id) {
  if (scheduler_.Sent(id, Clock::now())) RequestPlan();
}

// Its client has some of the answer, so that it waits for room.
bool Dispatcher::Impl::Resume(api::RequestId id, Running& running) {
  ModelRunner& runner = *runners_.at(running.spec.key);
  if (!runner.HasRoomFor(running.size.frame, running.request.client.Party())) return false;
  const auto sent = ResumeIn(runner, id, running);
  if (sent) return true;
  if (sent.error().code == api::ErrorCode::kOverloaded) return false;
  const auto stream = running.stream;
  EndRunning(id);
  stream->Fail(sent.error());
  return true;
}

api::Result<void> Dispatcher::Impl::ResumeIn(ModelRunner& runner, api::RequestId id, Running& running) {
  last_use_[runner.key()] = {running.spec, running.request.params.num_ctx};
  DecideContext(running, runner.info());
  api::ipc::Resume resume = running.stream->events.ResumePoint();
  resume.context = running.context;
  resume.spent = running.stream->times.spent();
  auto sent = runner.Submit(id, running.request, running.size.memory, resume, running.stream);
  if (sent) {
    RecordSent(id);
    spdlog::info("resumed model={} runner_pid={} output_tokens={}", running.spec.name, runner.pid(),
                 resume.tokens.size());
  }
  return sent;
}

}  // namespace quire::scheduler
