// The step loop of one loaded model: admits requests whose prompts are built, computes ragged batches, and
// emits events.
//
// One thread, the engine thread, owns all of it: caches, sequences and batch. Each step takes every decoding
// sequence and prompt chunks up to what the step's time allows (step_plan.h, prefill_budget.h), so that a
// long prompt never holds up running streams for more than one step.
//
// Memory follows live tokens. When a step finds no room, even after the snapshot store gave up what it could,
// the youngest sequence is preempted: what it computed becomes a snapshot, and it is resumed once another has
// ended. Nothing of this shows in any answer.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "api/ipc/messages.h"
#include "cache/hybrid_cache.h"
#include "runner/constraint/mask_turns.h"
#include "runner/draft/draft_length_controller.h"
#include "runner/draft/drafter.h"
#include "runner/engine/prompt/loaded_model.h"
#include "runner/engine/prompt/prompt_builder.h"
#include "runner/engine/shares/fair_share.h"
#include "runner/engine/shares/place_rotation.h"
#include "runner/engine/shares/place_share.h"
#include "runner/engine/shares/prefill_budget.h"
#include "runner/engine/shares/sampling_share.h"
#include "runner/engine/steps/active_request.h"
#include "runner/engine/steps/admission.h"
#include "runner/engine/steps/engine_stats.h"
#include "runner/engine/steps/image_encoder.h"
#include "runner/engine/steps/mailbox.h"
#include "runner/engine/steps/prefix_reuse.h"
#include "runner/kernels/thread_pool.h"

namespace quire::runner::engine {

// ---- what other threads post to the engine ----

// The daemon submitted a request; its prompt is being built.
struct Arrived {
  api::RequestId id;
};
// Its prompt is ready, or the error that ends it.
struct PromptBuilt {
  api::RequestId id;
  api::Request request;
  api::Result<BuiltPrompt> prompt;
  Clock::time_point arrived;
  api::ipc::Resume resume = {};
};
struct Stop {};
// Questions of somebody who looks; answered on the engine thread, between two steps.
struct EngineQuestion {
  api::ipc::InspectEngine question;
  std::function<void(api::ipc::EngineInspected)> answer;
};
struct CacheQuestion {
  api::ipc::InspectCache question;
  std::function<void(api::ipc::CacheInspected)> answer;
};

using Input = std::variant<Arrived, PromptBuilt, api::ipc::Credit, api::ipc::Cancel, Stop, EngineQuestion,
                           CacheQuestion>;

struct EngineLimits {
  int32_t running_max = 32;      // sequences in a batch
  int32_t prefill_tokens = 0;    // prompt tokens per step; 0 = by the time that steps take
  size_t cache_bytes = 0;        // of pages, slots and snapshots together
  size_t draft_cache_bytes = 0;  // of a draft model's, likewise
  bool prefix_cache = true;
  // The type of recurrent states in the prefix cache: kF32 keeps every bit, kBF16 and kQ8_0
  // (cache/stored_state.h) do not.
  cache::ElementType state_cache_type = cache::ElementType::kF32;
  // An engine without work for this long gives memory of its caches back to the system, if it has at least so
  // much that nothing holds: what a pause between two requests frees is left for the next.
  std::chrono::nanoseconds release_after = std::chrono::seconds(10);
  size_t release_bytes_min = size_t{64} << 20;
  int32_t draft_tokens = 0;                // per sequence and step; 0 = adaptive
  size_t parse_bytes = size_t{128} << 20;  // parse states of all answers' formats together
  int32_t check_invariants_every = 0;      // steps; a breach ends the process. 0 = never: it costs
  std::chrono::nanoseconds time_slice = PlaceRotation::kTimeSlice;  // of places that change hands
  std::function<std::chrono::nanoseconds()> sampling_clock =
      {};  // of a test, for what sampling takes; empty: the machine's
};

class Engine {
 public:
  // `emit` may be called at any time on the engine thread. `engine_stats` outlives the engine.
  static api::Result<std::unique_ptr<Engine>> Create(LoadedModel model, const EngineLimits& limits,
                                                     int32_t threads, Mailbox<Input>& inbox,
                                                     EngineStats& engine_stats,
                                                     std::function<void(api::ipc::RequestEvent)> emit);

  // Prefixes also go to the daemon's snapshot tier. Before Run().
  void AddTier(std::unique_ptr<TierLink> link) { prefixes_.AddTier(std::move(link)); }

  // Serves until Stop.
  void Run();
  // After Run(): stores in the tier what is not there yet, for at most this long.
  void FlushTier(std::chrono::nanoseconds time) { prefixes_.FlushTier(time); }
  const cache::Layout& cache_layout() const { return cache_->layout(); }

  int64_t cache_bytes() const { return static_cast<int64_t>(cache_->stats().capacity_bytes); }
  // Tokens of the longest sequence that the caches can hold.
  int32_t context_max() const { return context_max_; }

  // For tests and tools; on the engine thread, or after Run() has returned.
  int64_t resident_weight_bytes() const { return model_.model->resident_bytes(); }
  int64_t resident_scratch_bytes() const;  // by the steps so far
  std::expected<void, std::string> CheckInvariants() const;
  struct Stats {
    cache::StoreStats store;
    cache::CacheStats cache;
    uint64_t steps = 0;
    uint64_t preemptions = 0;
    uint64_t drafted = 0, accepted = 0;      // draft tokens
    uint64_t tokens_computed = 0;            // that belong to sequences, without rejected drafts
    uint64_t prompt_tokens_computed = 0;     // of prompts, those computed again after a preemption included
    std::chrono::nanoseconds step_time{};    // of all steps, with all that follows from their logits
    std::chrono::nanoseconds kernel_time{};  // of that, inside kernels
  };
  Stats stats() const;

 private:
  Engine(LoadedModel model, const EngineLimits& limits, int32_t threads, Mailbox<Input>& inbox,
         EngineStats& engine_stats, std::function<void(api::ipc::RequestEvent)> emit,
         std::unique_ptr<cache::HybridCache> cache, std::unique_ptr<draft::Drafter> drafter);

  bool HandleInput(Input input);  // false for Stop
  void AddCredit(const api::ipc::Credit& credit);
  void Enter(PromptBuilt built);
  bool ContinueReplays();
  // Nothing for a prompt that is to be answered.
  api::Result<std::optional<Embedding>> EmbeddingOf(const api::Prompt& prompt) const;
  void Cancel(api::RequestId id);
  bool RemoveEnded();  // whether there was one
  void ReleaseIdleMemory(bool busy);

  // Admission (engine_admission.cc).
  void Admit();
  void TrackStalls();
  struct AdmissionChoice {
    size_t next = 0;              // index into waiting_
    std::vector<size_t> leaving;  // indexes into running_; empty: it needs nobody's place
    std::optional<PlaceRotation::Scope> rotation = {};  // it is a handover of this
  };
  enum class PreemptedFor : uint8_t { kMemory, kClaim, kHandover };
  std::optional<AdmissionChoice> ChooseNext();
  enum class Claim : uint8_t {
    kIdleParty,     // its party runs nothing
    kIdleMember,    // it is of a member that runs nothing, and another of its party has more than one place
    kStalledPlace,  // a reader takes nothing
  };
  // Valid for one decision.
  struct AdmissionCandidates {
    std::vector<Place> places;          // of running_
    std::vector<WaitingState> waiting;  // of waiting_
    bool memory_is_taken = false;       // what is left of it is for requests that were preempted
  };
  AdmissionCandidates FindCandidates();
  std::optional<AdmissionChoice> ChooseForPlaces(Claim claim, const AdmissionCandidates& candidates);
  std::optional<AdmissionChoice> ChooseByRotation(const AdmissionCandidates& candidates);
  Leaving LeavingOf(const ActiveRequest& request, size_t paused_bytes) const;
  std::vector<Place> Places() const;
  std::vector<WaitingState> WaitingStates(const std::vector<Place>& places);
  void Preempt(size_t running, PreemptedFor what);
  size_t MemoryLeft() const;
  size_t PausedBytes() const;
  size_t GiveUpPaused();  // bytes that this frees
  // Marks those as crowded for which there is no memory beside what is due to other parties.
  void LimitToOwnMemory(const PlaceCounts& counts, size_t left, std::vector<WaitingState>& states) const;
  std::optional<size_t> PickNext(const AdmissionCandidates& candidates);  // index into waiting_
  bool StillFollows(const ActiveRequest& request) const;
  std::optional<Leader> FindLeaderOf(const ActiveRequest& request);
  void Start(std::unique_ptr<ActiveRequest> request);
  size_t BytesFor(const ActiveRequest& request) const;
  size_t MemoryOf(const ActiveRequest& request) const;
  bool GiveUpWideLeases();  // false when there are none
  bool PreemptYoungest();   // false when there is nobody to preempt

  // One step (engine_step.cc).
  bool Step();  // false when nobody can go on
  void ShareSampling();
  std::chrono::nanoseconds SamplingCostOf(const ActiveRequest& request) const;  // 0: unknown
  bool PrepareMasks();  // false: some are not there yet
  void BoundParseMemory();
  void UpdateShares();
  int32_t PromptTokensBeside(int32_t decoding) const;  // of the next step
  void PlanNext(std::vector<StepItem>& items);
  void FillBatch(const std::vector<StepItem>& items, models::Batch& batch);
  cache::OwnedStep BeginStep(std::vector<StepItem>& items);
  void Advance(const std::vector<StepItem>& items, int32_t prefill);
  std::chrono::nanoseconds Sample(const std::vector<StepItem>& items);  // what that took
  void Score(ActiveGeneration& generation, std::span<const float> logits);
  void Pool(const std::vector<StepItem>& items);

  // Images (engine_images.cc).
  static void SetImages(std::vector<ImageSpan> images, api::Request& request, ActiveRequest& active);
  void CollectImages();
  void StartEncoding();
  bool EncodeImages();  // false: none is wanted
  static bool HasImagesBehind(const ActiveRequest& request, int32_t reused);
  static void ReleaseImages(ActiveRequest& request);  // that are computed
  void AlignToImages(std::vector<StepItem>& items) const;
  void AddImages(const ActiveRequest& request, int32_t row, int32_t rows, models::Batch& batch) const;
  void PlaceImageRows(const std::vector<StepItem>& items, models::Batch& batch) const;

  // Speculative decoding (engine_draft.cc).
  void ProposeDrafts();  // for every sequence that decodes
  void ChooseDraftSource(ActiveRequest& request, int32_t rows);
  void RunDrafter();
  void StartDraft(ActiveRequest& request, const PrefixReuse::Outcome& reuse);
  void EndDraft(ActiveRequest& request);
  void AttachDrafts(std::vector<StepItem>& items);  // opens their transactions
  bool DiscardDrafts();                             // false where there are none
  void VerifyDraft(ActiveRequest& request, const StepItem& item, std::span<const float> logits);
  void AddHiddenRows(const ActiveRequest& request, int32_t begin, int32_t confirmed, models::Batch& batch);
  void StoreHiddenStates(ActiveRequest& request, int32_t confirmed, int32_t kept);

  void Shift(ActiveRequest& request);

  // Views (engine_inspect.cc).
  std::optional<api::Divergence> DivergenceOf(const ActiveRequest& request,
                                              const PrefixReuse::Outcome& reuse) const;
  api::ipc::InspectedSequence Describe(const ActiveRequest& request, bool runs) const;
  api::ipc::EngineInspected Inspect(const api::ipc::InspectEngine& question) const;
  api::ipc::CacheInspected Inspect(const api::ipc::InspectCache& question) const;

  void UpdateEngineStats();
  void Emit(api::RequestId id, api::Event event);

  LoadedModel model_;
  const EngineLimits limits_;
  ThreadPool pool_;
  Mailbox<Input>& inbox_;
  EngineStats& engine_stats_;
  const std::function<void(api::ipc::RequestEvent)> emit_;
  const cache::RotateKeys rotate_keys_;
  std::unique_ptr<cache::HybridCache> cache_;  // outlives the store and all sequences
  PrefixReuse prefixes_;
  std::unique_ptr<draft::Drafter> drafter_;      // outlives all draft states; null: none
  std::unique_ptr<ImageEncoder> image_encoder_;  // null: the model sees no images
  const int32_t context_max_;

  std::unordered_map<uint64_t, int32_t>
      building_;                   // arrived, prompt not built yet; credit that came meanwhile
  ActiveRequests waiting_;         // in order of arrival, preempted ones anywhere
  ActiveRequests running_;         // in order of admission
  FairShare shares_;               // of everyone in waiting_ and running_
  bool admission_paused_ = false;  // memory ran out; nobody has ended since
  uint64_t arrivals_ = 0;
  PlaceRotation rotation_;
  uint64_t places_given_ = 0, waits_ = 0;  // so far
  Clock::time_point last_work_{};

  PrefillBudget budget_;
  SamplingShare sampling_share_;
  // The times of the last token of each kind.
  std::array<std::chrono::nanoseconds, ActiveGeneration::kSamplingKinds> sampling_times_ = {};
  constraint::MaskTurns mask_turns_;
  draft::DraftLengthController draft_lengths_;

  // Memory that steps reuse: decoding allocates none.
  struct Scratch {
    std::vector<SequenceState> states;      // of running_
    std::vector<PartyState> parties;        // that have a running request
    std::vector<const std::string*> names;  // theirs
    std::vector<SamplingShare::Sequence> sampling;
    std::vector<constraint::MaskRequest> masks;
    std::vector<FairShare::Request> shares;  // of running_ and waiting_
    std::vector<StepItem> items;
    std::vector<cache::Append> appends;
    models::Batch batch;
    std::vector<bool> scheduled;  // of running_
    std::vector<draft::Candidate> rounds;
    std::vector<draft::DraftRequest> draft_requests;
    std::vector<api::TokenId> rows;  // of one sequence
  };
  Scratch scratch_;
  std::vector<float> logits_;  // [logit rows, vocab]
  std::vector<float> hidden_;  // [hidden rows, hidden size]
  sampler::Workspace sampling_workspace_;
  struct LastStep {
    int32_t sequences = 0;
    int32_t decoding = 0;
    int32_t prefill_tokens = 0;
    int32_t draft_tokens = 0;
    std::chrono::nanoseconds took{};
  } last_step_;
  uint64_t steps_ = 0;
  uint64_t preemptions_ = 0;
  uint64_t drafted_ = 0, accepted_ = 0;
  uint64_t tokens_computed_ = 0;
  uint64_t prompt_tokens_computed_ = 0;
  std::chrono::nanoseconds step_time_{}, kernel_time_{};
};

}  // namespace quire::runner::engine
