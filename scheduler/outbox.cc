#include "scheduler/outbox.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "api/base/random_id.h"
#include "scheduler/clock.h"

namespace quire::scheduler {
namespace {

// The bytes of requests that are encoded in one go, unless one alone has more.
constexpr size_t kSliceBytes = size_t{1} << 20;

// A seed of the daemon's own choosing: the request can then be repeated.
int64_t DrawSeed() { return static_cast<int64_t>(api::RandomBits() & static_cast<uint64_t>(INT64_MAX)); }

}  // namespace

bool Outbox::Send(const std::weak_ptr<RequestCarrier>& carrier) {
  std::deque<api::RequestId> without_room;
  size_t left = kSliceBytes;
  for (; !unsent_.empty() && left > 0; unsent_.pop_front()) {
    const api::RequestId id = unsent_.front();
    const size_t bytes = FrameBytesOf(id);
    if (bytes > left && left < kSliceBytes) break;
    if (Admit(id, carrier)) {
      left -= std::min(bytes, left);
    } else {
      without_room.push_back(id);
    }
  }
  const bool more = !unsent_.empty();
  unsent_.insert(unsent_.begin(), without_room.begin(), without_room.end());
  return more;
}

// 0: there is nothing to encode.
size_t Outbox::FrameBytesOf(api::RequestId id) {
  if (const RunningRequest* running = requests_.FindRunning(id)) return running->size.frame;
  const PendingRequest* pending = requests_.FindPending(id);
  return pending == nullptr ? 0 : pending->size.frame;
}

void Outbox::Drop(const std::string& key) {
  std::erase_if(unsent_, [&](api::RequestId id) {
    const ModelSpec* spec = requests_.SpecOf(id);
    return spec == nullptr || spec->key == key;
  });
}

// Sends the request to its loaded model, for the first time or again. False: there is no room yet.
bool Outbox::Admit(api::RequestId id, const std::weak_ptr<RequestCarrier>& carrier) {
  if (RunningRequest* running = requests_.FindRunning(id)) return Resume(id, *running);
  const auto found = requests_.pending.find(id);
  if (found == requests_.pending.end()) return true;  // its client has left
  const std::shared_ptr<PendingRequest> pending = found->second;
  api::Result<std::unique_ptr<TokenStream>> answer =
      SubmitTo(runners_.At(pending->spec.key), *pending, carrier);
  if (!answer || !*answer) {
    scheduler_.Remove(id, Clock::now());
    replan_();
  }
  requests_.pending.erase(id);
  pending->Answer(std::move(answer));
  return true;
}

// Once a runner has started the request, its context is what that runner's caches held, whatever the next
// one's hold.
void Outbox::DecideContext(RunningRequest& running, const api::ipc::ModelInfo& info) const {
  if (running.stream->times.spent()) return;
  int32_t& num_ctx = running.request.params.num_ctx;
  num_ctx = runners_.EffectiveContext(running.requested_num_ctx, info);
  running.context = info.num_ctx > 0 ? std::min(num_ctx, info.num_ctx) : num_ctx;
}

// Null for a bare load.
api::Result<std::unique_ptr<TokenStream>> Outbox::SubmitTo(ModelRunner& runner, PendingRequest& pending,
                                                           const std::weak_ptr<RequestCarrier>& carrier) {
  const int32_t asked = pending.request ? pending.request->params.num_ctx : 0;
  const int32_t num_ctx = runners_.EffectiveContext(asked, runner.info());
  RunnerTable::LastUse& use = runners_.UseOf(runner.key());
  if (pending.request || use.num_ctx == 0) use.num_ctx = num_ctx;
  use.spec = pending.spec;
  if (!pending.request) return nullptr;
  // A text that cannot fit would hold up the link to the runner, and with it the answers of others.
  if (auto misfit = runners_.CheckTexts(*pending.request, pending.size, &runner.info()))
    return std::unexpected(*std::move(misfit));
  if (!runner.HasRoomFor(pending.size.frame, pending.client.party)) {
    return api::Fail(api::ErrorCode::kOverloaded, RunnerLink::kBehind);
  }

  auto stream = std::make_shared<EventStream>(pending.answered.executor());
  RunningRequest running{pending.spec, *std::move(pending.request), stream, pending.size};
  running.requested_num_ctx = asked;
  running.requested_seed = running.request.params.seed;
  if (running.requested_seed < 0) running.request.params.seed = DrawSeed();
  DecideContext(running, runner.info());
  if (auto sent = runner.Submit(pending.id, running.request, {.context = running.context}, stream); !sent) {
    return std::unexpected(std::move(sent).error());
  }
  requests_.running.emplace(pending.id, std::move(running));
  RecordSent(pending.id);
  return std::make_unique<RunnerTokenStream>(carrier, pending.id, std::move(stream),
                                             Clock::now() - pending.arrived);
}

void Outbox::RecordSent(api::RequestId id) {
  if (scheduler_.Sent(id, Clock::now())) replan_();
}

// Its client has some of the answer, so that it waits for room.
bool Outbox::Resume(api::RequestId id, RunningRequest& running) {
  ModelRunner& runner = runners_.At(running.spec.key);
  if (!runner.HasRoomFor(running.size.frame, running.request.client.party)) return false;
  const auto sent = ResumeIn(runner, id, running);
  if (sent) return true;
  if (sent.error().code == api::ErrorCode::kOverloaded) return false;
  const auto stream = running.stream;
  requests_.running.erase(id);
  scheduler_.Remove(id, Clock::now());
  replan_();
  stream->Fail(sent.error());
  return true;
}

api::Result<void> Outbox::ResumeIn(ModelRunner& runner, api::RequestId id, RunningRequest& running) {
  runners_.UseOf(runner.key()) = {running.spec, running.request.params.num_ctx};
  DecideContext(running, runner.info());
  api::ipc::Resume resume = running.stream->events.ResumePoint();
  resume.context = running.context;
  resume.spent = running.stream->times.spent();
  auto sent = runner.Submit(id, running.request, resume, running.stream);
  if (sent) {
    RecordSent(id);
    spdlog::info("resumed model={} runner_pid={} output_tokens={}", running.spec.name, runner.pid(),
                 resume.tokens.size());
  }
  return sent;
}

}  // namespace quire::scheduler
