// One step: plan, reserve, compute, sample.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <utility>

#include "runner/engine/steps/engine.h"
#include "runner/engine/steps/prompt_report.h"
#include "runner/sampler/logprobs.h"
#include "runner/work/work_budget.h"

namespace quire::runner::engine {

void Engine::PlanNext(std::vector<StepItem>& items) {
  auto& states = scratch_.states;
  auto& parties = scratch_.parties;
  auto& names = scratch_.names;
  states.clear();
  parties.clear();
  names.clear();
  int32_t decoding = 0;
  for (const auto& request : running_) {
    const ActiveGeneration& generation = *request->generation;
    size_t party = 0;
    while (party < names.size() && *names[party] != request->party) ++party;
    if (party == names.size()) {
      names.push_back(&request->party);
      parties.push_back(shares_.Of(request->party));
    }
    const int32_t prefill_left = generation.prefill_left();
    states.push_back({.prefill_left = prefill_left - (prefill_left > 0 && SamplesLater(*request) ? 1 : 0),
                      .decode_left = generation.decode_left(),
                      .backpressured = Pauses(*request),
                      .skipped_tokens = request->skipped_tokens,
                      .party = party,
                      .scored = generation.scores_prompt()});
    decoding += states.back().prefill_left == 0 && !states.back().backpressured ? 1 : 0;
  }
  PlanStep(states, parties, PromptTokensBeside(decoding), ScoredTokensMax(model_.model->vocab_size()), items);
  AlignToImages(items);
}

int32_t Engine::PromptTokensBeside(int32_t decoding) const {
  return limits_.prefill_tokens > 0 ? limits_.prefill_tokens : budget_.Tokens(decoding);
}

void Engine::FillBatch(const std::vector<StepItem>& items, models::Batch& batch) {
  batch.tokens.clear();
  batch.row_begin.assign(1, 0);
  batch.logit_rows.clear();
  batch.hidden_rows.clear();
  batch.embedded.clear();
  batch.seen_end.clear();
  for (std::vector<int64_t>& axis : batch.rope_positions) axis.clear();
  for (const auto& item : items) {
    ActiveRequest& request = *running_[item.sequence];
    const ActiveGeneration& generation = *request.generation;
    const auto drafted = request.draft.open ? std::ssize(request.draft.tokens) : 0;
    const auto tokens = generation.Uncomputed(item.tokens - static_cast<int32_t>(drafted));
    const auto begin = static_cast<int32_t>(batch.tokens.size());
    batch.tokens.insert(batch.tokens.end(), tokens.begin(), tokens.end());
    if (drafted > 0) {
      batch.tokens.insert(batch.tokens.end(), request.draft.tokens.begin(), request.draft.tokens.end());
    }
    AddImages(request, begin, static_cast<int32_t>(tokens.size()), batch);
    batch.row_begin.push_back(static_cast<int32_t>(batch.tokens.size()));
    request.hidden_begin = batch.hidden_rows.size();
    if (request.embedding) {
      for (const int32_t row : request.embedding->pooler->RowsOf(item.tokens)) {
        batch.hidden_rows.push_back(begin + row);
      }
    } else {
      AddHiddenRows(request, begin, static_cast<int32_t>(tokens.size()), batch);
    }
    const PromptReport::Rows scored = generation.ScoredRows(static_cast<int32_t>(tokens.size()));
    request.scored_rows = scored.end - scored.begin;
    for (int32_t row = scored.begin; row < scored.end; ++row) batch.logit_rows.push_back(begin + row);
    if (!request.embedding && generation.AllComputedAfter(static_cast<int32_t>(tokens.size()))) {
      const int32_t end = batch.row_begin.back();
      for (auto row = end - 1 - static_cast<int32_t>(drafted); row < end; ++row) {
        batch.logit_rows.push_back(row);
      }
    }
  }
  PlaceImageRows(items, batch);
}

// Sampling takes the time that the requests make it take: parties share that, too. A prompt that may end in
// the step has a token sampled behind it.
void Engine::ShareSampling() {
  auto& sequences = scratch_.sampling;
  sequences.clear();
  const int32_t prompt_max = PromptTokensBeside(0);
  for (size_t i = 0; i < running_.size(); ++i) {
    ActiveRequest& request = *running_[i];
    request.sits_out = false;
    const ActiveGeneration& generation = *request.generation;
    if (generation.backpressured()) continue;
    if (!request.last_sampled) request.last_sampled = steps_;
    sequences.push_back(
        {.index = i,
         .party = &request.party,
         .weight = shares_.Of(request.party).weight,
         .samples = !request.embedding && generation.has_mask() && generation.prefill_left() <= prompt_max,
         .waits = Pauses(request),
         .cost = SamplingCostOf(request),
         .last_sampled = *request.last_sampled});
  }
  sampling_share_.Plan(sequences);
  for (const auto& sequence : sequences) running_[sequence.index]->sits_out = sequence.sits_out;
}

std::chrono::nanoseconds Engine::SamplingCostOf(const ActiveRequest& request) const {
  const auto kind = request.generation->sampling_kind();
  const bool has_sampled = request.sampling_time > request.sampling_time.zero();
  return has_sampled || !kind ? request.sampling_time : sampling_times_[*kind];
}

// A sequence whose mask is not there yet samples nothing: one that takes long delays its own answer only.
bool Engine::PrepareMasks() {
  BoundParseMemory();
  auto& masks = scratch_.masks;
  masks.clear();
  for (const auto& request : running_) {
    if (auto* const matcher = request->generation->PlanMask()) {
      masks.push_back({matcher, &request->party, &request->member});
    }
  }
  return mask_turns_.Prepare(masks);
}

// Ends the largest answer of the party whose answers have the most.
void Engine::BoundParseMemory() {
  const auto sum = [this](const std::string* party) {
    size_t bytes = 0;
    for (const auto* list : {&running_, &waiting_}) {
      for (const auto& request : *list) {
        if (party == nullptr || request->party == *party) bytes += request->generation->parse_bytes();
      }
    }
    return bytes;
  };
  while (sum(nullptr) > limits_.parse_bytes) {
    std::pair<size_t, size_t> most;
    ActiveGeneration* largest = nullptr;
    for (const auto* list : {&running_, &waiting_}) {
      for (const auto& request : *list) {
        const std::pair bytes(sum(&request->party), request->generation->parse_bytes());
        if (bytes.second == 0 || bytes < most) continue;
        most = bytes;
        largest = request->generation.get();
      }
    }
    largest->FailForParseMemory();
  }
}

// A party of which the engine can do nothing does not hold the others' virtual times back.
void Engine::UpdateShares() {
  auto& requests = scratch_.shares;
  requests.clear();
  for (const auto& request : running_) requests.push_back({&request->party, !Pauses(*request)});
  for (const auto& request : waiting_) {
    requests.push_back({&request->party, !request->generation->backpressured()});
  }
  shares_.Update(requests);
}

// Reserves the memory of the step, preempting as need be; `items` may shrink. Null when nobody can go on.
cache::OwnedStep Engine::BeginStep(std::vector<StepItem>& items) {
  bool lease_given_up = false;
  while (true) {
    PlanNext(items);
    const auto sits_out = [](const auto& request) { return request->sits_out; };
    if (const auto one = std::ranges::find_if(running_, sits_out); items.empty() && one != running_.end()) {
      (*one)->sits_out = false;  // those that it sits out for were preempted
      PlanNext(items);
    }
    if (items.empty()) return nullptr;
    AttachDrafts(items);
    std::vector<cache::Append>& appends = scratch_.appends;
    appends.clear();
    for (const auto& item : items) appends.push_back({&running_[item.sequence]->sequence, item.tokens});
    auto step = cache_->Begin(appends);
    if (step) return std::move(*step);
    if (DiscardDrafts() || GiveUpWideLeases() || PreemptYoungest()) continue;
    // Alone: only what it stands on itself is left to give up.
    ActiveRequest& last = *running_.front();
    if (std::exchange(lease_given_up, true)) {
      // Not the end of the context: the process has no memory, and another runner goes on.
      if (step.error().code == cache::ErrorCode::kOutOfMemory) throw std::bad_alloc();
      last.generation->EndOfContext();
      return nullptr;
    }
    last.lease = {};
    cache_->CancelCaptures(last.sequence);
  }
}

bool Engine::Step() {
  const bool all_masks = PrepareMasks();
  ShareSampling();
  UpdateShares();
  const auto draft_begin = Clock::now();
  ProposeDrafts();
  const auto begin = Clock::now();
  const uint64_t accepted_before = accepted_;
  const uint64_t drafted_before = drafted_;
  std::vector<StepItem>& items = scratch_.items;
  auto step = BeginStep(items);
  if (!step) return !all_masks;
  models::Batch& batch = scratch_.batch;
  FillBatch(items, batch);
  const size_t logits = batch.logit_rows.size() * static_cast<size_t>(model_.model->vocab_size());
  if (logits > logits_.capacity()) {  // what is estimated, not twice as many
    logits_ = {};
    logits_.reserve(logits);
  }
  logits_.resize(logits);
  hidden_.resize(batch.hidden_rows.size() * static_cast<size_t>(model_.model->hidden_size()));
  const auto kernels_before = pool_.busy();
  model_.model->Forward(batch, *step, pool_, models::Outputs(logits_, hidden_));
  kernel_time_ += pool_.busy() - kernels_before;
  step->Commit();
  step.reset();
  ++steps_;
  int32_t decoding = 0;
  int32_t prefill = 0;
  int32_t forced = 0;
  for (const auto& item : items) {
    if (running_[item.sequence]->generation->prefill_left() > 0) {
      prefill += item.tokens;
    } else {
      ++decoding;
      forced += running_[item.sequence]->generation->decode_left() - 1;
    }
  }
  Advance(items, prefill);
  const auto sampling = Sample(items);
  Pool(items);
  if (limits_.check_invariants_every > 0 &&
      steps_ % static_cast<uint64_t>(limits_.check_invariants_every) == 0) {
    if (auto checked = CheckInvariants(); !checked) {
      std::fprintf(stderr, "quire-runner: %s\n", checked.error().c_str());
      std::abort();
    }
  }
  const auto took = Clock::now() - begin;
  step_time_ += took;
  sampling_share_.EndStep(took - sampling);
  last_step_ = {.sequences = static_cast<int32_t>(items.size()),
                .decoding = decoding,
                .prefill_tokens = prefill,
                .draft_tokens = static_cast<int32_t>(drafted_ - drafted_before),
                .took = took};
  if (prefill == 0) {
    draft_lengths_.ObserveStep(static_cast<int32_t>(batch.tokens.size()), took);
    const auto accepted = static_cast<int32_t>(accepted_ - accepted_before);
    draft_lengths_.ObserveOutcome(decoding + accepted, Clock::now() - draft_begin);
  }
  // Beside a sequence that decodes they cost what prompt tokens do.
  budget_.Observe(decoding, prefill + forced, took);
  return true;
}

void Engine::Advance(const std::vector<StepItem>& items, int32_t prefill) {
  prefixes_.AdvanceClock();
  std::vector<bool>& scheduled = scratch_.scheduled;
  scheduled.assign(running_.size(), false);
  for (const auto& item : items) {
    ActiveRequest& request = *running_[item.sequence];
    scheduled[item.sequence] = true;
    const int32_t prompt_left = request.generation->prompt_tokens() - request.generation->computed();
    prompt_tokens_computed_ += static_cast<uint64_t>(std::clamp(prompt_left, 0, item.tokens));
    tokens_computed_ += static_cast<uint64_t>(item.tokens);
    shares_.Charge(request.party, item.tokens);
    if (request.draft.open) continue;  // how many of them belong to it is yet to be seen
    request.generation->Computed(item.tokens);
    ReleaseImages(request);
    StoreHiddenStates(request, item.tokens, item.tokens);
    prefixes_.Collect(request);
  }
  for (size_t i = 0; i < running_.size(); ++i) {
    if (!scheduled[i] && running_[i]->generation->prefill_left() > 0) running_[i]->skipped_tokens += prefill;
  }
}

std::chrono::nanoseconds Engine::Sample(const std::vector<StepItem>& items) {
  // The time of this thread: while another process has the core it does not run.
  const auto now = [this] {
    return limits_.sampling_clock ? limits_.sampling_clock() : WorkBudget::CpuTime();
  };
  std::chrono::nanoseconds all{};
  const auto vocab = static_cast<size_t>(model_.model->vocab_size());
  size_t row = 0;
  for (const auto& item : items) {
    ActiveRequest& request = *running_[item.sequence];
    ActiveGeneration& generation = *request.generation;
    const auto begin = now();
    const auto scored_rows = static_cast<size_t>(request.scored_rows);
    if (scored_rows > 0) Score(generation, std::span(logits_).subspan(row * vocab, scored_rows * vocab));
    row += scored_rows;
    if (request.draft.open) {
      const size_t rows = request.draft.tokens.size() + 1;
      VerifyDraft(request, item, std::span(logits_).subspan(row * vocab, rows * vocab));
      row += rows;
    } else if (request.embedding || !generation.AllComputedAfter(0)) {
      continue;
    } else {
      generation.Sample(std::span(logits_).subspan(row++ * vocab, vocab), sampling_workspace_);
      if (const auto kind = generation.sampling_kind()) sampling_times_[*kind] = now() - begin;
    }
    request.sampling_time = now() - begin;
    request.last_sampled = steps_;
    sampling_share_.Charge(request.party, request.sampling_time);
    all += request.sampling_time;
    if (generation.needs_shift()) Shift(request);
  }
  return all;
}

// `logits`: [rows, vocab], of rows of its prompt. A large vocabulary takes a millisecond each.
void Engine::Score(ActiveGeneration& generation, std::span<const float> logits) {
  const auto vocab = static_cast<size_t>(model_.model->vocab_size());
  const auto tokens = generation.ScoredTokens();
  std::vector<api::Result<sampler::Logprobs>> scores(logits.size() / vocab);
  pool_.ParallelFor(scores.size(), [&](size_t row) noexcept {
    scores[row] = sampler::ComputeLogprobs(logits.subspan(row * vocab, vocab), tokens[row],
                                           generation.prompt_alternatives());
  });
  generation.ReportPrompt(scores);
}

void Engine::Pool(const std::vector<StepItem>& items) {
  const auto width = static_cast<size_t>(model_.model->hidden_size());
  for (const auto& item : items) {
    ActiveRequest& request = *running_[item.sequence];
    if (!request.embedding) continue;
    const Embedding& embedding = *request.embedding;
    models::Pooler& pooler = *request.embedding->pooler;
    const size_t rows = pooler.RowsOf(item.tokens).size();
    pooler.Add(item.tokens, std::span(hidden_).subspan(request.hidden_begin * width, rows * width));
    if (!request.generation->AllComputedAfter(0)) continue;
    std::vector<float> vector = pooler.Finish(embedding.dimensions, embedding.normalize);
    if (embedding.rank) vector = {model_.rank->Score(vector)};
    request.generation->FinishEmbedding(std::move(vector));
  }
}

// Moves keys where every layer allows it; elsewhere what stays is a new prompt.
void Engine::Shift(ActiveRequest& request) {
  const ActiveGeneration::Range range = request.generation->ShiftRange();
  const bool moved =
      rotate_keys_ && cache_->RemoveRange(request.sequence, range.begin, range.end, rotate_keys_);
  request.generation->Shift(range, moved);
  request.lease = {};
  request.boundaries.clear();  // of a prompt that is no longer whole
  request.restore_points.clear();
  PrefixReuse::Outcome reuse;
  if (moved) {
    request.exact = false;
    request.shared_tokens = std::min(request.shared_tokens, range.begin);
  } else {
    request.sequence = {};
    reuse = prefixes_.AttachPrefix(request, running_);
    request.shared_tokens = reuse.reused;
    request.generation->Start(reuse.reused, {.miss = reuse.miss});
  }
  StartDraft(request, reuse);
}

}  // namespace quire::runner::engine
