#include "runner/engine/steps/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "runner/draft/drafters.h"

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
    : model_(std::move(model)),
      limits_(limits),
      pool_(threads),
      inbox_(inbox),
      engine_stats_(engine_stats),
      emit_(std::move(emit)),
      rotate_keys_(model_.model->key_rotation()),
      cache_(std::move(cache)),
      prefixes_(*cache_, limits.cache_bytes, limits.prefix_cache),
      drafter_(std::move(drafter)),
      image_encoder_(model_.tower ? std::make_unique<ImageEncoder>(std::move(model_.tower)) : nullptr),
      context_max_(static_cast<int32_t>(
          std::min<cache::Position>(cache_->LargestSequence(StepTarget().tokens_max), INT32_MAX))),
      rotation_(limits.time_slice) {
  pool_.CountIn(engine_stats_.progress);
  // Not the context that these caches hold: an answer may have begun in a runner that had others.
  model_.model->SetContext(model_.model->context_length());
}

void Engine::Run() {
  pool_.PinCaller();
  bool busy = false;
  bool moving = false;  // prefixes, to or from the tier
  while (true) {
    UpdateEngineStats();
    const auto wait = moving ? kMovingInterval : kIdleInterval;
    for (auto& input : busy ? inbox_.PopAll() : inbox_.WaitAndPopAll(wait)) {
      if (!HandleInput(std::move(input))) return;
    }
    CollectImages();
    Admit();
    moving = prefixes_.PollTier(waiting_, budget_.token_seconds());
    busy = Step();
    if (EncodeImages()) busy = true;
    if (ContinueReplays()) busy = true;
    if (RemoveEnded()) busy = true;
    ReleaseIdleMemory(busy);
  }
}

void Engine::ReleaseIdleMemory(bool busy) {
  const auto now = Clock::now();
  if (busy) last_work_ = now;
  if (busy || now - last_work_ < limits_.release_after) return;
  if (cache_->resident_bytes() - cache_->used_bytes() < limits_.release_bytes_min) return;
  cache_->ReleaseFree();
  if (drafter_) drafter_->ReleaseFree();
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
    about_engine->answer(Inspect(about_engine->question));
  } else if (const auto* about_cache = std::get_if<CacheQuestion>(&input)) {
    about_cache->answer(Inspect(about_cache->question));
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
  for (const auto& list : {&running_, &waiting_}) {
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
  const int32_t context = built.resume.context > 0 ? built.resume.context : context_max_;
  if (context > context_max_) {
    return Emit(id,
                api::Failed{{api::ErrorCode::kUnavailable,
                             fmt::format("the request has a context of {} tokens from the runner in which it "
                                         "began; the caches of this one hold {}",
                                         context, context_max_)}});
  }
  const auto tokens = static_cast<int32_t>(built.prompt->tokens.size());
  if (tokens >= context_max_) {
    return Emit(
        id,
        api::Failed{{api::ErrorCode::kContextLengthExceeded,
                     fmt::format("request ({} tokens) needs {} bytes of cache, this runner has {}: the "
                                 "largest request that fits has {} tokens; raise --memory (QUIRE_MEMORY) or "
                                 "--cache-bytes (QUIRE_CACHE_BYTES)",
                                 tokens, SequenceBytes(cache_->layout(), tokens + 1, StepTarget().tokens_max),
                                 cache_bytes(), context_max_ - 1),
                     "options.num_ctx", tokens, context_max_ - 1}});
  }
  for (const ImageSpan& span : built.prompt->images) {
    if (image_encoder_ && image_encoder_->Fits(*span.image)) continue;
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
  request->party = built.request.client.Party();
  request->member = built.request.client.Member();
  request->isolation = built.request.client.IsolationKey();
  request->arrival = ++arrivals_;
  request->boundaries = std::move(built.prompt->boundaries);
  request->restore_points = std::move(built.prompt->restore_points);
  SetImages(std::move(built.prompt->images), built.request, *request);
  shares_.Enter(request->party, built.request.client.weight);
  ActiveGeneration::Setup setup{id, std::move(built.request), std::move(*built.prompt), built.arrived,
                                std::move(built.resume)};
  request->generation = std::make_unique<ActiveGeneration>(
      std::move(setup), context, model_.tokenizer, model_.end_of_generation,
      [this, id](api::Event event) { Emit(id, std::move(event)); });
  request->waits_since = ++waits_;
  waiting_.push_back(std::move(request));
}

// Ids of images are no tokens that a context could begin with or a draft repeat, and none is cut away.
void Engine::SetImages(std::vector<ImageSpan> images, api::Request& request, ActiveRequest& active) {
  if (images.empty()) return;
  active.images = std::move(images);
  active.encoded.resize(active.images.size());
  active.images_ready = false;
  // Its id has 31 bits.
  const auto is_tiny = [](const ImageSpan& span) { return span.image->tokens() < 2; };
  if (std::ranges::any_of(active.images, is_tiny)) active.reuses = false;
  request.shift = false;
  request.return_context = false;
  request.params.draft_num_predict = 0;
}

// Between two steps, so that those that run go on. False: there are none.
bool Engine::ContinueReplays() {
  const auto replayed = [](const auto& request) { return request->generation->replayed(); };
  const auto left = std::ranges::count_if(waiting_, std::not_fn(replayed));
  if (left == 0) return false;
  for (const auto& request : waiting_) {
    if (!replayed(request)) static_cast<void>(request->generation->Replay(Clock::now() + kReplayTime / left));
  }
  return true;
}

api::Result<std::optional<Embedding>> Engine::EmbeddingOf(const api::Prompt& prompt) const {
  const auto* embed = std::get_if<api::EmbedPrompt>(&prompt);
  if (embed == nullptr) return std::nullopt;
  if (embed->rank) return Embedding{models::Pooling::kLast, 0, false, true, std::nullopt};
  if (!model_.pooling) return std::unexpected(model_.pooling.error());
  const int32_t width = model_.model->hidden_size();
  if (embed->dimensions > width) {
    return api::Fail(
        api::ErrorCode::kInvalidArgument,
        fmt::format("field \"dimensions\" is {}; the embeddings of this model have {} dimensions",
                    embed->dimensions, width),
        "dimensions");
  }
  return Embedding{*model_.pooling, embed->dimensions, embed->normalize, false, std::nullopt};
}

void Engine::Cancel(api::RequestId id) {
  building_.erase(static_cast<uint64_t>(id));
  for (auto* list : {&running_, &waiting_}) {
    std::erase_if(*list, [&](const std::unique_ptr<ActiveRequest>& request) {
      if (request->generation->id() != id) return false;
      EndDraft(*request);
      prefixes_.StorePrefix(*request);
      shares_.Exit(request->party);
      admission_paused_ = false;
      return true;
    });
  }
}

// One that waits was preempted while its last deltas waited for credit.
bool Engine::RemoveEnded() {
  size_t removed = 0;
  for (auto* list : {&running_, &waiting_}) {
    removed += std::erase_if(*list, [this](const std::unique_ptr<ActiveRequest>& request) {
      if (!request->generation->ended()) return false;
      EndDraft(*request);
      prefixes_.StorePrefix(*request);
      shares_.Exit(request->party);
      admission_paused_ = false;
      return true;
    });
  }
  return removed > 0;
}

std::expected<void, std::string> Engine::CheckInvariants() const {
  if (auto checked = cache_->CheckInvariants(); !checked) return checked;
  return prefixes_.CheckInvariants();
}

Engine::Stats Engine::stats() const {
  return {.store = prefixes_.stats(),
          .cache = cache_->stats(),
          .steps = steps_,
          .preemptions = preemptions_,
          .drafted = drafted_,
          .accepted = accepted_,
          .tokens_computed = tokens_computed_,
          .prompt_tokens_computed = prompt_tokens_computed_,
          .step_time = step_time_,
          .kernel_time = kernel_time_};
}

int64_t Engine::resident_scratch_bytes() const {
  const size_t results = (logits_.capacity() + hidden_.capacity()) * sizeof(float);
  return model_.model->resident_scratch_bytes() + static_cast<int64_t>(results);
}

void Engine::UpdateEngineStats() {
  engine_stats_.progress.fetch_add(1, std::memory_order_relaxed);
  engine_stats_.steps.store(steps_, std::memory_order_relaxed);
  engine_stats_.running.store(static_cast<int32_t>(running_.size()), std::memory_order_relaxed);
  engine_stats_.waiting.store(static_cast<int32_t>(waiting_.size() + building_.size()),
                              std::memory_order_relaxed);
  engine_stats_.cache_bytes_used.store(static_cast<int64_t>(cache_->used_bytes()), std::memory_order_relaxed);
  engine_stats_.cache_bytes_resident.store(static_cast<int64_t>(cache_->resident_bytes()),
                                           std::memory_order_relaxed);
  const cache::StoreStats prefixes = prefixes_.stats();
  engine_stats_.prefix_snapshots.store(static_cast<int64_t>(prefixes.nodes), std::memory_order_relaxed);
  engine_stats_.prefix_bytes.store(static_cast<int64_t>(prefixes.bytes), std::memory_order_relaxed);
  engine_stats_.prefix_evictions.store(prefixes.evictions, std::memory_order_relaxed);
  engine_stats_.prefix_changes.store(prefixes_.store().changes() + 1, std::memory_order_relaxed);
}

void Engine::Emit(api::RequestId id, api::Event event) { emit_({id, std::move(event)}); }

}  // namespace quire::runner::engine
