#include "runner/engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "runner/draft/head_drafter.h"
#include "runner/draft/layer_drafter.h"
#include "runner/draft/model_drafter.h"

namespace quire::runner::engine {
namespace {

constexpr auto kIdleInterval = std::chrono::seconds(1);  // an idle engine shows in its vitals that it lives

// Prefixes are shared within it: a tenant's requests of one salt.
std::string IsolationKey(const api::Client& client) {
  return fmt::format("{}:{}{}", client.tenant.size(), client.tenant, client.cache_salt);
}

api::Result<std::unique_ptr<draft::Drafter>> MakeDrafter(LoadedModel& model, size_t cache_bytes,
                                                         cache::HybridCache& cache) {
  const int32_t vocab = model.model->vocab_size();
  if (model.draft.head) return draft::MakeHeadDrafter(std::move(model.draft.head), vocab, cache);
  if (model.draft.layer && !model.drafter) {
    return draft::MakeLayerDrafter(std::move(model.draft.layer), vocab, model.model->hidden_size(),
                                   cache_bytes);
  }
  if (!model.draft.model) return std::move(model.drafter);
  return draft::MakeModelDrafter(std::move(model.draft.model), model.tokenizer->vocab_size(), cache_bytes);
}

}  // namespace

api::Result<std::unique_ptr<Engine>> Engine::Create(LoadedModel model, EngineLimits limits, int32_t threads,
                                                    Mailbox<Input>& inbox, Vitals& vitals,
                                                    std::function<void(api::ipc::RequestEvent)> emit) {
  auto cache = cache::HybridCache::Create(model.model->cache_layout(), {.bytes = limits.cache_bytes});
  if (!cache) return api::Fail(api::ErrorCode::kInternal, cache.error().message);
  auto drafter = MakeDrafter(model, limits.draft_cache_bytes, **cache);
  if (!drafter) return std::unexpected(drafter.error());
  return std::unique_ptr<Engine>(new Engine(std::move(model), limits, threads, inbox, vitals, std::move(emit),
                                            std::move(*cache), *std::move(drafter)));
}

Engine::Engine(LoadedModel model, EngineLimits limits, int32_t threads, Mailbox<Input>& inbox, Vitals& vitals,
               std::function<void(api::ipc::RequestEvent)> emit, std::unique_ptr<cache::HybridCache> cache,
               std::unique_ptr<draft::Drafter> drafter)
    : model_(std::move(model)),
      limits_(limits),
      pool_(threads),
      inbox_(inbox),
      vitals_(vitals),
      emit_(std::move(emit)),
      rotate_keys_(model_.model->key_rotation()),
      cache_(std::move(cache)),
      prefixes_(*cache_, limits.cache_bytes, limits.reuse_prefixes),
      drafter_(std::move(drafter)),
      context_max_(static_cast<int32_t>(
          std::min<cache::Position>(cache_->LargestSequence(StepTarget().tokens_max), INT32_MAX))) {
  pool_.CountIn(vitals_.progress);
}

void Engine::Run() {
  bool busy = false;
  while (true) {
    UpdateVitals();
    for (auto& input : busy ? inbox_.TakeAll() : inbox_.WaitAndTakeAll(kIdleInterval)) {
      if (!Take(std::move(input))) return;
    }
    Admit();
    busy = Step();
    if (RemoveEnded()) busy = true;
  }
}

bool Engine::Take(Input input) {
  if (const auto* arrived = std::get_if<Arrived>(&input)) {
    preparing_.insert(static_cast<uint64_t>(arrived->id));
  } else if (auto* prepared = std::get_if<Prepared>(&input)) {
    Enter(std::move(*prepared));
  } else if (const auto* credit = std::get_if<api::ipc::Credit>(&input)) {
    for (const auto& list : {&running_, &waiting_}) {
      for (const auto& request : *list) {
        if (request->generation->id() == credit->id) request->generation->AddCredit(credit->deltas);
      }
    }
  } else if (const auto* cancel = std::get_if<api::ipc::Cancel>(&input)) {
    Cancel(cancel->id);
  } else {
    return false;
  }
  return true;
}

void Engine::Enter(Prepared prepared) {
  const api::RequestId id = prepared.id;
  if (preparing_.erase(static_cast<uint64_t>(id)) == 0) return;  // cancelled meanwhile
  if (!prepared.prompt) return Emit(id, api::Failed{prepared.prompt.error()});
  const auto tokens = static_cast<int32_t>(prepared.prompt->tokens.size());
  if (tokens >= context_max_) {
    return Emit(
        id, api::Failed{{api::ErrorCode::kContextLengthExceeded,
                         fmt::format("request ({} tokens) needs {} bytes of cache, this runner has {}: the "
                                     "largest request that fits has {} tokens",
                                     tokens, SequenceBytes(cache_->layout(), tokens + 1, 1), cache_bytes(),
                                     context_max_ - 1),
                         "options.num_ctx"}});
  }
  auto embedding = EmbeddingOf(prepared.request.prompt);
  if (!embedding) return Emit(id, api::Failed{embedding.error()});
  auto request = std::make_unique<ActiveRequest>();
  request->embedding = *std::move(embedding);
  request->reuses = !request->embedding || request->embedding->pooling == models::Pooling::kLast;
  request->tenant = prepared.request.client.tenant;
  request->isolation = IsolationKey(prepared.request.client);
  request->arrival = ++arrivals_;
  request->boundaries = std::move(prepared.prompt->boundaries);
  shares_.Enter(request->tenant, prepared.request.client.weight);
  Generation::Setup setup{id, std::move(prepared.request), std::move(*prepared.prompt), prepared.arrived,
                          std::move(prepared.resume)};
  request->generation =
      std::make_unique<Generation>(std::move(setup), context_max_, model_.tokenizer, model_.end_of_generation,
                                   [this, id](api::Event event) { Emit(id, std::move(event)); });
  waiting_.push_back(std::move(request));
}

api::Result<std::optional<Embedding>> Engine::EmbeddingOf(const api::Prompt& prompt) const {
  const auto* embed = std::get_if<api::EmbedPrompt>(&prompt);
  if (embed == nullptr) return std::nullopt;
  if (!model_.pooling) return std::unexpected(model_.pooling.error());
  const int32_t width = model_.model->hidden_size();
  if (embed->dimensions > width) {
    return api::Fail(api::ErrorCode::kInvalidArgument,
                     fmt::format("field \"dimensions\" is {}; the vectors of this model have {} numbers",
                                 embed->dimensions, width),
                     "dimensions");
  }
  return Embedding{*model_.pooling, embed->dimensions, embed->normalize, std::nullopt};
}

void Engine::Cancel(api::RequestId id) {
  preparing_.erase(static_cast<uint64_t>(id));
  for (auto* list : {&running_, &waiting_}) {
    std::erase_if(*list, [&](const std::unique_ptr<ActiveRequest>& request) {
      if (request->generation->id() != id) return false;
      EndDraft(*request);
      prefixes_.Keep(*request);
      shares_.Leave(request->tenant);
      hold_admission_ = false;
      return true;
    });
  }
}

bool Engine::RemoveEnded() {
  const size_t removed = std::erase_if(running_, [this](const std::unique_ptr<ActiveRequest>& request) {
    if (!request->generation->ended()) return false;
    EndDraft(*request);
    prefixes_.Keep(*request);
    shares_.Leave(request->tenant);
    hold_admission_ = false;
    return true;
  });
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

int64_t Engine::scratch_held() const {
  const size_t results = (logits_.capacity() + hidden_.capacity()) * sizeof(float);
  return model_.model->scratch_held() + static_cast<int64_t>(results);
}

void Engine::UpdateVitals() {
  vitals_.progress.fetch_add(1, std::memory_order_relaxed);
  vitals_.steps.store(steps_, std::memory_order_relaxed);
  vitals_.running.store(static_cast<int32_t>(running_.size()), std::memory_order_relaxed);
  vitals_.waiting.store(static_cast<int32_t>(waiting_.size() + preparing_.size()), std::memory_order_relaxed);
  vitals_.cache_bytes_used.store(static_cast<int64_t>(cache_->used_bytes()), std::memory_order_relaxed);
  const cache::StoreStats prefixes = prefixes_.stats();
  vitals_.prefix_snapshots.store(static_cast<int64_t>(prefixes.nodes), std::memory_order_relaxed);
  vitals_.prefix_bytes.store(static_cast<int64_t>(prefixes.bytes), std::memory_order_relaxed);
  vitals_.prefix_evictions.store(prefixes.evictions, std::memory_order_relaxed);
}

void Engine::Emit(api::RequestId id, api::Event event) { emit_({id, std::move(event)}); }

}  // namespace quire::runner::engine
