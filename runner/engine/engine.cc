#include "runner/engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace quire::runner::engine {
namespace {

constexpr auto kBeatInterval = std::chrono::seconds(1);
constexpr uint64_t kBeatSteps = 64;

// Pages for `tokens` tokens in every attention group, and a slot for every sequence that may run.
cache::Capacity CapacityFor(const cache::Layout& layout, const EngineLimits& limits) {
  const int64_t pages = (limits.cache_tokens + layout.page_tokens - 1) / layout.page_tokens;
  return {.pages = std::vector<int32_t>(layout.groups.size(), static_cast<int32_t>(pages)),
          .slots = limits.running_max};
}

}  // namespace

api::Result<std::unique_ptr<Engine>> Engine::Create(LoadedModel model, EngineLimits limits, int32_t threads,
                                                    Mailbox<Input>& inbox,
                                                    std::function<void(api::ipc::ToDaemon)> send) {
  const cache::Layout& layout = model.model->cache_layout();
  auto cache = cache::HybridCache::Create(layout, CapacityFor(layout, limits));
  if (!cache) return api::Fail(api::ErrorCode::kInternal, cache.error().message);
  return std::unique_ptr<Engine>(
      new Engine(std::move(model), limits, threads, inbox, std::move(send), std::move(*cache)));
}

Engine::Engine(LoadedModel model, EngineLimits limits, int32_t threads, Mailbox<Input>& inbox,
               std::function<void(api::ipc::ToDaemon)> send, std::unique_ptr<cache::HybridCache> cache)
    : model_(std::move(model)),
      limits_(limits),
      pool_(threads),
      inbox_(inbox),
      send_(std::move(send)),
      cache_(std::move(cache)) {}

void Engine::Run() {
  auto next_beat = Clock::now();
  while (true) {
    Admit();
    const auto items = PlanNext();
    if (const auto now = Clock::now(); now >= next_beat || (steps_ % kBeatSteps == 0 && !items.empty())) {
      SendBeat();
      next_beat = now + kBeatInterval;
    }
    for (auto& input : items.empty() ? inbox_.WaitAndTakeAll(kBeatInterval) : inbox_.TakeAll()) {
      if (!Take(std::move(input))) return;
    }
    RemoveEnded();
    if (!items.empty()) Step(PlanNext());
    RemoveEnded();
  }
}

bool Engine::Take(Input input) {
  const auto running = [this](api::RequestId id) {
    return std::ranges::find(running_, id, [](const Running& entry) { return entry.generation->id(); });
  };
  if (const auto* arrived = std::get_if<Arrived>(&input)) {
    preparing_.insert(static_cast<uint64_t>(arrived->id));
  } else if (auto* prepared = std::get_if<Prepared>(&input)) {
    if (preparing_.erase(static_cast<uint64_t>(prepared->id)) == 0) return true;  // cancelled meanwhile
    if (prepared->prompt) {
      waiting_.push_back(std::move(*prepared));
    } else {
      Emit(prepared->id, api::Failed{prepared->prompt.error()});
    }
  } else if (const auto* credit = std::get_if<api::ipc::Credit>(&input)) {
    if (auto it = running(credit->id); it != running_.end()) it->generation->AddCredit(credit->deltas);
  } else if (const auto* cancel = std::get_if<api::ipc::Cancel>(&input)) {
    preparing_.erase(static_cast<uint64_t>(cancel->id));
    std::erase_if(waiting_, [&](const Prepared& request) { return request.id == cancel->id; });
    if (auto it = running(cancel->id); it != running_.end()) {
      reserved_tokens_ -= it->reserved_tokens;
      running_.erase(it);
    }
  } else {
    return false;
  }
  return true;
}

int64_t Engine::WorstCaseTokens(const api::Request& request, const PreparedPrompt& prompt) const {
  const auto prompt_tokens = static_cast<int64_t>(prompt.tokens.size());
  const int64_t most =
      request.params.num_predict < 0 ? prompt.num_ctx : prompt_tokens + request.params.num_predict + 1;
  // A page is taken whole, so each sequence may leave most of its last one unused.
  return std::min<int64_t>(most, prompt.num_ctx) + model_.model->cache_layout().page_tokens;
}

bool Engine::HasRoomFor(const Prepared& request) const {
  return static_cast<int32_t>(running_.size()) < limits_.running_max &&
         reserved_tokens_ + WorstCaseTokens(request.request, *request.prompt) <= limits_.cache_tokens;
}

void Engine::Admit() {
  while (!waiting_.empty()) {
    if (running_.empty() && !HasRoomFor(waiting_.front())) {
      const auto need = WorstCaseTokens(waiting_.front().request, *waiting_.front().prompt);
      Emit(waiting_.front().id,
           api::Failed{{api::ErrorCode::kContextLengthExceeded,
                        fmt::format("request needs cache for {} tokens, this runner has {}", need,
                                    limits_.cache_tokens),
                        "options.num_ctx"}});
      waiting_.pop_front();
      continue;
    }
    if (!HasRoomFor(waiting_.front())) return;
    Start(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

void Engine::Start(Prepared request) {
  const int64_t reserved = WorstCaseTokens(request.request, *request.prompt);
  const api::RequestId id = request.id;
  reserved_tokens_ += reserved;
  Generation::Setup setup{id, std::move(request.request), std::move(*request.prompt), request.arrived};
  running_.push_back({std::make_unique<Generation>(
                          std::move(setup), cache_->NewSequence(), model_.tokenizer, model_.end_of_generation,
                          [this, id](api::Event event) { Emit(id, std::move(event)); }),
                      reserved});
}

std::vector<StepItem> Engine::PlanNext() const {
  std::vector<SequenceState> states;
  states.reserve(running_.size());
  for (const auto& entry : running_) states.push_back(entry.generation->state());
  return PlanStep(states, limits_.prefill_tokens);
}

void Engine::Step(const std::vector<StepItem>& items) {
  if (items.empty()) return;
  models::Batch batch;
  std::vector<cache::Append> appends;
  std::vector<size_t> sampling;
  batch.row_begin.push_back(0);
  for (const auto& item : items) {
    Generation& generation = *running_[item.sequence].generation;
    const auto tokens = generation.Uncomputed(item.tokens);
    batch.tokens.insert(batch.tokens.end(), tokens.begin(), tokens.end());
    batch.row_begin.push_back(static_cast<int32_t>(batch.tokens.size()));
    appends.push_back({&generation.sequence(), item.tokens});
    if (generation.AllComputedAfter(item.tokens)) {
      batch.logit_rows.push_back(batch.row_begin.back() - 1);
      sampling.push_back(item.sequence);
    }
  }
  auto step = cache_->Begin(appends);
  if (!step) {  // admission reserves the worst case, so this is our own mistake: it costs the youngest, not
                // the runner
    running_[items.back().sequence].generation->Fail({api::ErrorCode::kInternal, step.error().message});
    return;
  }
  const auto vocab = static_cast<size_t>(model_.model->vocab_size());
  logits_.resize(batch.logit_rows.size() * vocab);
  model_.model->Forward(batch, **step, pool_, logits_);
  (*step)->Commit();
  ++steps_;

  for (auto& entry : running_) entry.generation->CountWait();
  for (const auto& item : items) running_[item.sequence].generation->Computed(item.tokens);
  for (size_t i = 0; i < sampling.size(); ++i) {
    Generation& generation = *running_[sampling[i]].generation;
    generation.Sample(std::span(logits_).subspan(i * vocab, vocab), sampling_workspace_);
    if (generation.wants_shift()) generation.Shift(cache_->NewSequence());
  }
}

void Engine::RemoveEnded() {
  std::erase_if(running_, [this](const Running& entry) {
    if (!entry.generation->ended()) return false;
    reserved_tokens_ -= entry.reserved_tokens;
    return true;
  });
}

void Engine::SendBeat() {
  send_(api::ipc::Beat{.steps = steps_,
                       .running = static_cast<int32_t>(running_.size()),
                       .waiting = static_cast<int32_t>(waiting_.size() + preparing_.size()),
                       .cache_bytes_used = static_cast<int64_t>(cache_->stats().used_bytes)});
}

void Engine::Emit(api::RequestId id, api::Event event) {
  send_(api::ipc::RequestEvent{id, std::move(event)});
}

}  // namespace quire::runner::engine
