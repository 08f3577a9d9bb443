#include "runner/engine/steps/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "runner/draft/drafters.h"
#include "runner/engine/steps/engine_inspect.h"

namespace quire::runner::engine {
namespace {

constexpr std::chrono::milliseconds kIdleInterval =
    std::chrono::seconds(1);  // how often an idle engine updates its progress counter
// How often an idle engine looks after the prefixes that move to or from the tier.
constexpr std::chrono::milliseconds kMovingInterval(1);
// Between two steps: answers that runners before had begun are taken over for this long.
constexpr std::chrono::nanoseconds kReplayTime = std::chrono::milliseconds(10);

api::Result<std::unique_ptr<draft::Drafter>> MakeDrafter(LoadedModel& model, size_t cache_bytes,
                                                         cache::HybridCache& cache) {
  const int32_t vocab = model.model->vocab_size();
  if (model.draft.head) return draft::MakeHeadDrafter(std::move(model.draft.head), vocab, cache);
  if (model.draft.mtp && !model.drafter) {
    return draft::MakeMtpDrafter(std::move(model.draft.mtp), vocab, model.model->hidden_size(), cache_bytes);
  }
  if (!model.draft.model) return std::move(model.drafter);
  return draft::MakeModelDrafter(std::move(model.draft.model), model.tokenizer->vocab_size(), cache_bytes);
}

}  // namespace

EngineState::EngineState(LoadedModel loaded, const EngineLimits& engine_limits, int32_t threads,
                         std::unique_ptr<cache::HybridCache> caches,
                         std::unique_ptr<draft::Drafter> draft_source)
    : model(std::move(loaded)),
      limits(engine_limits),
      pool(threads),
      cache(std::move(caches)),
      prefixes(*cache, limits.cache_bytes, limits.prefix_cache),
      drafter(std::move(draft_source)),
      context_max(static_cast<int32_t>(
          std::min<cache::Position>(cache->LargestSequence(StepTarget().tokens_max), INT32_MAX))) {}

std::expected<void, std::string> EngineState::CheckInvariants() const {
  if (auto checked = cache->CheckInvariants(); !checked) return checked;
  return prefixes.CheckInvariants();
}

api::Result<std::unique_ptr<Engine>> Engine::Create(LoadedModel model, const EngineLimits& limits,
                                                    int32_t threads, Mailbox<Input>& inbox,
                                                    EngineStats& engine_stats,
                                                    std::function<void(api::ipc::RequestEvent)> emit) {
  cache::Layout layout = model.model->cache_layout();
  layout.stored_state = limits.state_cache_type;
  auto cache = cache::HybridCache::Create(std::move(layout), {.bytes = limits.cache_bytes});
  if (!cache) return api::Fail(api::ErrorCode::kInternal, cache.error().message);
  auto drafter = MakeDrafter(model, limits.draft_cache_bytes, **cache);
  if (!drafter) return std::unexpected(drafter.error());
  return std::unique_ptr<Engine>(new Engine(std::move(model), limits, threads, inbox, engine_stats,
                                            std::move(emit), std::move(*cache), *std::move(drafter)));
}

Engine::Engine(LoadedModel model, const EngineLimits& limits, int32_t threads, Mailbox<Input>& inbox,
               EngineStats& engine_stats, std::function<void(api::ipc::RequestEvent)> emit,
               std::unique_ptr<cache::HybridCache> cache, std::unique_ptr<draft::Drafter> drafter)
    : state_(std::move(model), limits, threads, std::move(cache), std::move(drafter)),
      inbox_(inbox),
      engine_stats_(engine_stats),
      emit_(std::move(emit)),
      images_(state_),
      drafts_(state_),
      admission_(state_, drafts_),
      step_(state_, admission_, drafts_, images_) {
  state_.pool.CountIn(engine_stats_.progress);
  // Not the context that these caches hold: an answer may have begun in a runner that had others.
  state_.model.model->SetContext(state_.model.model->context_length());
}

void Engine::Run() {
  state_.pool.PinCaller();
  bool busy = false;
  bool moving = false;  // prefixes, to or from the tier
  while (true) {
    UpdateEngineStats();
    const auto wait = moving ? kMovingInterval : kIdleInterval;
    for (auto& input : busy ? inbox_.PopAll() : inbox_.WaitAndPopAll(wait)) {
      if (!HandleInput(std::move(input))) return;
    }
    images_.Collect();
    admission_.Admit();
    moving = state_.prefixes.PollTier(state_.waiting, step_.token_seconds());
    busy = step_.Run();
    if (images_.Encode()) busy = true;
    if (ContinueReplays()) busy = true;
    // One that waits was preempted while its last deltas waited for credit.
    const auto ended = [](const ActiveRequest& request) { return request.generation->ended(); };
    if (admission_.Remove(ended) > 0) busy = true;
    ReleaseIdleMemory(busy);
  }
}

void Engine::ReleaseIdleMemory(bool busy) {
  const auto now = Clock::now();
  if (busy) last_work_ = now;
  if (busy || now - last_work_ < state_.limits.release_after) return;
  if (state_.cache->resident_bytes() - state_.cache->used_bytes() < state_.limits.release_bytes_min) return;
  state_.cache->ReleaseFree();
  if (state_.drafter) state_.drafter->ReleaseFree();
}

bool Engine::HandleInput(Input input) {
  if (const auto* arrived = std::get_if<Arrived>(&input)) {
    building_.emplace(static_cast<uint64_t>(arrived->id), 0);
  } else if (auto* built = std::get_if<PromptBuilt>(&input)) {
    Enter(std::move(*built));
  } else if (const auto* credit = std::get_if<api::ipc::Credit>(&input)) {
    AddCredit(*credit);
  } else if (const auto* cancel = std::get_if<api::ipc::Cancel>(&input)) {
    Cancel(cancel->id);
  } else if (const auto* about_engine = std::get_if<EngineQuestion>(&input)) {
    about_engine->answer(InspectEngine(state_, step_, building_.size(), about_engine->question));
  } else if (const auto* about_cache = std::get_if<CacheQuestion>(&input)) {
    about_cache->answer(InspectCache(state_, about_cache->question));
  } else {
    return false;
  }
  return true;
}

// The client of a resumed answer takes deltas also while its prompt is built.
void Engine::AddCredit(const api::ipc::Credit& credit) {
  if (const auto found = building_.find(static_cast<uint64_t>(credit.id)); found != building_.end()) {
    found->second += credit.deltas;
    return;
  }
  for (const auto& list : {&state_.running, &state_.waiting}) {
    for (const auto& request : *list) {
      if (request->generation->id() == credit.id) request->generation->AddCredit(credit.deltas);
    }
  }
}

void Engine::Enter(PromptBuilt built) {
  const api::RequestId id = built.id;
  const auto building = building_.extract(static_cast<uint64_t>(id));
  if (building.empty()) return;  // canceled meanwhile
  built.resume.credit += building.mapped();
  if (!built.prompt) return Emit(id, api::Failed{built.prompt.error()});
  const int32_t context = built.resume.context > 0 ? built.resume.context : state_.context_max;
  if (context > state_.context_max) {
    return Emit(id,
                api::Failed{{api::ErrorCode::kUnavailable,
                             fmt::format("the request has a context of {} tokens from the runner in which it "
                                         "began; the caches of this one hold {}",
                                         context, state_.context_max)}});
  }
  const auto tokens = static_cast<int32_t>(built.prompt->tokens.size());
  if (tokens >= state_.context_max) {
    return Emit(
        id,
        api::Failed{
            {api::ErrorCode::kContextLengthExceeded,
             fmt::format("request ({} tokens) needs {} bytes of cache, this runner has {}: the "
                         "largest request that fits has {} tokens; raise --memory (QUIRE_MEMORY) or "
                         "--cache-bytes (QUIRE_CACHE_BYTES)",
                         tokens, SequenceBytes(state_.cache->layout(), tokens + 1, StepTarget().tokens_max),
                         cache_bytes(), state_.context_max - 1),
             "options.num_ctx", tokens, state_.context_max - 1}});
  }
  if (!images_.Fit(built.prompt->images)) {
    return Emit(id,
                api::Failed{{api::ErrorCode::kBadModel,
                             "the model's files disagree about the sizes of images: its vision tower does "
                             "not take what its processor makes"}});
  }
  auto embedding = EmbeddingOf(built.request.prompt);
  if (!embedding) return Emit(id, api::Failed{embedding.error()});
  auto request = std::make_unique<ActiveRequest>();
  request->embedding = *std::move(embedding);
  request->reuses = !request->embedding || request->embedding->pooling == models::Pooling::kLast;
  request->party = built.request.client.party;
  const std::string member = built.request.client.Member();
  request->member = member.empty() ? 0 : std::hash<std::string>()(member);
  request->isolation = built.request.client.IsolationKey();
  request->boundaries = std::move(built.prompt->boundaries);
  request->restore_points = std::move(built.prompt->restore_points);
  PromptImages::Set(std::move(built.prompt->images), built.request, *request);
  ActiveGeneration::Setup setup{id, std::move(built.request), std::move(*built.prompt), built.arrived,
                                std::move(built.resume)};
  request->generation = std::make_unique<ActiveGeneration>(
      std::move(setup), context, state_.model.tokenizer, state_.model.end_of_generation,
      [this, id](api::Event event) { Emit(id, std::move(event)); });
  admission_.Enter(std::move(request));
}

// Between two steps, so that those that run go on. False: there are none.
bool Engine::ContinueReplays() {
  const auto replayed = [](const auto& request) { return request->generation->replayed(); };
  const auto left = std::ranges::count_if(state_.waiting, std::not_fn(replayed));
  if (left == 0) return false;
  for (const auto& request : state_.waiting) {
    if (!replayed(request)) static_cast<void>(request->generation->Replay(Clock::now() + kReplayTime / left));
  }
  return true;
}

api::Result<std::optional<Embedding>> Engine::EmbeddingOf(const api::Prompt& prompt) const {
  const auto* embed = std::get_if<api::EmbedPrompt>(&prompt);
  if (embed == nullptr) return std::nullopt;
  if (embed->rank) return Embedding{models::Pooling::kLast, 0, false, true, std::nullopt};
  if (!state_.model.pooling) return std::unexpected(state_.model.pooling.error());
  const int32_t width = state_.model.model->hidden_size();
  if (embed->dimensions > width) {
    return api::Fail(
        api::ErrorCode::kInvalidArgument,
        fmt::format("field \"dimensions\" is {}; the embeddings of this model have {} dimensions",
                    embed->dimensions, width),
        "dimensions");
  }
  return Embedding{*state_.model.pooling, embed->dimensions, embed->normalize, false, std::nullopt};
}

void Engine::Cancel(api::RequestId id) {
  building_.erase(static_cast<uint64_t>(id));
  admission_.Remove([id](const ActiveRequest& request) { return request.generation->id() == id; });
}

Engine::Stats Engine::stats() const {
  return {.store = state_.prefixes.stats(),
          .cache = state_.cache->stats(),
          .steps = step_.counters().steps,
          .preemptions = admission_.preemptions(),
          .drafted = drafts_.drafted(),
          .accepted = drafts_.accepted(),
          .tokens_computed = step_.counters().tokens_computed,
          .prompt_tokens_computed = step_.counters().prompt_tokens_computed,
          .step_time = step_.counters().step_time,
          .kernel_time = step_.counters().kernel_time + images_.kernel_time()};
}

int64_t Engine::resident_scratch_bytes() const {
  return state_.model.model->resident_scratch_bytes() + static_cast<int64_t>(step_.result_bytes());
}

void Engine::UpdateEngineStats() {
  engine_stats_.progress.fetch_add(1, std::memory_order_relaxed);
  engine_stats_.steps.store(step_.counters().steps, std::memory_order_relaxed);
  engine_stats_.running.store(static_cast<int32_t>(state_.running.size()), std::memory_order_relaxed);
  engine_stats_.waiting.store(static_cast<int32_t>(state_.waiting.size() + building_.size()),
                              std::memory_order_relaxed);
  engine_stats_.cache_bytes_used.store(static_cast<int64_t>(state_.cache->used_bytes()),
                                       std::memory_order_relaxed);
  engine_stats_.cache_bytes_resident.store(static_cast<int64_t>(state_.cache->resident_bytes()),
                                           std::memory_order_relaxed);
  const cache::StoreStats prefixes = state_.prefixes.stats();
  engine_stats_.prefix_snapshots.store(static_cast<int64_t>(prefixes.nodes), std::memory_order_relaxed);
  engine_stats_.prefix_bytes.store(static_cast<int64_t>(prefixes.bytes), std::memory_order_relaxed);
  engine_stats_.prefix_evictions.store(prefixes.evictions, std::memory_order_relaxed);
  engine_stats_.prefix_changes.store(state_.prefixes.store().changes() + 1, std::memory_order_relaxed);
}

void Engine::Emit(api::RequestId id, api::Event event) { emit_({id, std::move(event)}); }

}  // namespace quire::runner::engine
