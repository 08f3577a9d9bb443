#include "runner/engine/steps/engine_step.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <utility>

#include "runner/engine/steps/prompt_report.h"
#include "runner/sampler/logprobs.h"
#include "runner/work/work_budget.h"

namespace quire::runner::engine {

void BatchStep::PlanNext(std::vector<StepItem>& items) {
  auto& states = scratch_.states;
  auto& parties = scratch_.parties;
  auto& ids = scratch_.ids;
  states.clear();
  parties.clear();
  ids.clear();
  int32_t decoding = 0;
  for (const auto& request : state_.running) {
    const ActiveGeneration& generation = *request->generation;
    size_t party = 0;
    while (party < ids.size() && *ids[party] != request->party) ++party;
    if (party == ids.size()) {
      ids.push_back(&request->party);
      parties.push_back({state_.VirtualTime(request->party), static_cast<double>(request->party.weight())});
    }
    const int32_t prefill_left = generation.sequence().prefill_left();
    states.push_back({.prefill_left = prefill_left - (prefill_left > 0 && SamplesLater(*request) ? 1 : 0),
                      .decode_left = generation.sequence().decode_left(),
                      .backpressured = Pauses(*request),
                      .skipped_tokens = request->service.skipped_tokens,
                      .party = party,
                      .scored = generation.report().scores()});
    decoding += states.back().prefill_left == 0 && !states.back().backpressured ? 1 : 0;
  }
  // A prompt of another party waits for the step as a stream does.
  const int32_t others = parties.size() > 1 ? std::max(decoding, 1) : decoding;
  PlanStep(states, parties, PromptTokensBeside(others), ScoredTokensMax(state_.model.model->vocab_size()),
           items);
  images_.Align(items);
}

int32_t BatchStep::PromptTokensBeside(int32_t decoding) const {
  return state_.limits.prefill_tokens > 0 ? state_.limits.prefill_tokens : budget_.Tokens(decoding);
}

void BatchStep::FillBatch(const std::vector<StepItem>& items, models::Batch& batch) {
  batch.tokens.clear();
  batch.row_begin.assign(1, 0);
  batch.logit_rows.clear();
  batch.hidden_rows.clear();
  batch.embedded.clear();
  batch.seen_end.clear();
  for (std::vector<int64_t>& axis : batch.rope_positions) axis.clear();
  for (const auto& item : items) {
    ActiveRequest& request = *state_.running[item.sequence];
    const ActiveGeneration& generation = *request.generation;
    const auto drafted = request.running().draft.open ? std::ssize(request.running().draft.tokens) : 0;
    const auto tokens = generation.sequence().Uncomputed(item.tokens - static_cast<int32_t>(drafted));
    const auto begin = static_cast<int32_t>(batch.tokens.size());
    batch.tokens.insert(batch.tokens.end(), tokens.begin(), tokens.end());
    if (drafted > 0) {
      batch.tokens.insert(batch.tokens.end(), request.running().draft.tokens.begin(),
                          request.running().draft.tokens.end());
    }
    images_.AddRows(request, begin, static_cast<int32_t>(tokens.size()), batch);
    batch.row_begin.push_back(static_cast<int32_t>(batch.tokens.size()));
    request.running().hidden_begin = batch.hidden_rows.size();
    if (request.embedding) {
      for (const int32_t row : request.embedding->pooler->RowsOf(item.tokens)) {
        batch.hidden_rows.push_back(begin + row);
      }
    } else {
      drafts_.AddHiddenRows(request, begin, static_cast<int32_t>(tokens.size()), batch);
    }
    const PromptReport::Rows scored =
        generation.report().RowsOf(generation.sequence().computed(), static_cast<int32_t>(tokens.size()));
    request.running().scored_rows = scored.end - scored.begin;
    for (int32_t row = scored.begin; row < scored.end; ++row) batch.logit_rows.push_back(begin + row);
    if (!request.embedding && generation.sequence().AllComputedAfter(static_cast<int32_t>(tokens.size()))) {
      const int32_t end = batch.row_begin.back();
      for (auto row = end - 1 - static_cast<int32_t>(drafted); row < end; ++row) {
        batch.logit_rows.push_back(row);
      }
    }
  }
  images_.PlaceRows(items, batch);
}

// Sampling takes the time that the requests make it take: parties share that, too. A prompt that may end in
// the step has a token sampled behind it.
void BatchStep::ShareSampling() {
  auto& sequences = scratch_.sampling;
  sequences.clear();
  const int32_t prompt_max = PromptTokensBeside(0);
  for (size_t i = 0; i < state_.running.size(); ++i) {
    ActiveRequest& request = *state_.running[i];
    request.running().sits_out = false;
    const ActiveGeneration& generation = *request.generation;
    if (generation.backpressured()) continue;
    auto& last_sampled = request.service.last_sampled;
    if (!last_sampled) last_sampled = counters_.steps;
    sequences.push_back({.index = i,
                         .party = &request.party,
                         .samples = !request.embedding && generation.choice().has_mask() &&
                                    generation.sequence().prefill_left() <= prompt_max,
                         .waits = Pauses(request),
                         .cost = SamplingCostOf(request),
                         .last_sampled = *last_sampled});
  }
  sampling_share_.Plan(sequences);
  for (const auto& sequence : sequences) {
    state_.running[sequence.index]->running().sits_out = sequence.sits_out;
  }
}

std::chrono::nanoseconds BatchStep::SamplingCostOf(const ActiveRequest& request) const {
  const auto kind = request.generation->choice().kind();
  const auto own = request.service.sampling_time;
  return own > own.zero() || !kind ? own : sampling_times_[*kind];
}

// A sequence whose mask is not there yet samples nothing: one that takes long delays its own answer only.
bool BatchStep::PrepareMasks() {
  BoundParseMemory();
  auto& masks = scratch_.masks;
  masks.clear();
  for (const auto& request : state_.running) {
    if (auto* const matcher = request->generation->choice().PlanMask()) {
      masks.push_back({matcher, request->party, request->member});
    }
  }
  return mask_turns_.Prepare(masks);
}

// Ends the largest answer of the party whose answers have the most.
void BatchStep::BoundParseMemory() {
  const auto sum = [this](const fair::PartyId* party) {
    size_t bytes = 0;
    for (const auto* list : {&state_.running, &state_.waiting}) {
      for (const auto& request : *list) {
        if (party == nullptr || request->party == *party)
          bytes += request->generation->choice().parse_bytes();
      }
    }
    return bytes;
  };
  while (sum(nullptr) > state_.limits.parse_bytes) {
    std::pair<size_t, size_t> most;
    ActiveGeneration* largest = nullptr;
    for (const auto* list : {&state_.running, &state_.waiting}) {
      for (const auto& request : *list) {
        const std::pair bytes(sum(&request->party), request->generation->choice().parse_bytes());
        if (bytes.second == 0 || bytes < most) continue;
        most = bytes;
        largest = request->generation.get();
      }
    }
    largest->Fail(TokenChoice::ParseMemoryError());
  }
}

// Parties compete for prompts. One that asks for no more than it gets, as for the next tokens of its answers,
// is owed nothing, but pays for them; nor is one of which the engine can do nothing.
void BatchStep::UpdateShares() {
  auto& parties = scratch_.going_on;
  parties.clear();
  for (const auto& request : state_.running) {
    if (!Pauses(*request) && request->generation->sequence().prefill_left() > 0)
      parties.push_back(request->party);
  }
  for (const auto& request : state_.waiting) {
    if (!request->generation->backpressured()) parties.push_back(request->party);
  }
  state_.shares.SetActive(parties);
}

// Reserves the memory of the step, preempting as need be; `items` may shrink. Null when nobody can go on.
cache::OwnedStep BatchStep::Begin(std::vector<StepItem>& items) {
  bool lease_given_up = false;
  while (true) {
    PlanNext(items);
    const auto sits_out = [](const auto& request) { return request->running().sits_out; };
    if (const auto one = std::ranges::find_if(state_.running, sits_out);
        items.empty() && one != state_.running.end()) {
      (*one)->running().sits_out = false;  // those that it sits out for were preempted
      PlanNext(items);
    }
    if (items.empty()) return nullptr;
    drafts_.Attach(items);
    std::vector<cache::Append>& appends = scratch_.appends;
    appends.clear();
    for (const auto& item : items)
      appends.push_back({&state_.running[item.sequence]->running().cached.sequence, item.tokens});
    auto step = state_.cache->Begin(appends);
    if (step) return std::move(*step);
    if (drafts_.Discard() || admission_.FreeMemory()) continue;
    // Alone: only what it stands on itself is left to give up.
    ActiveRequest& last = *state_.running.front();
    if (std::exchange(lease_given_up, true)) {
      // Not the end of the context: the process has no memory, and another runner goes on.
      if (step.error().code == cache::ErrorCode::kOutOfMemory) throw std::bad_alloc();
      last.generation->EndOfContext();
      return nullptr;
    }
    last.running().cached.lease = {};
    state_.cache->CancelCaptures(last.running().cached.sequence);
  }
}

bool BatchStep::Run() {
  const bool all_masks = PrepareMasks();
  ShareSampling();
  UpdateShares();
  const auto draft_begin = Clock::now();
  drafts_.Propose();
  const auto begin = Clock::now();
  const uint64_t accepted_before = drafts_.accepted();
  const uint64_t drafted_before = drafts_.drafted();
  std::vector<StepItem>& items = scratch_.items;
  auto step = Begin(items);
  if (!step) return !all_masks;
  models::Batch& batch = scratch_.batch;
  FillBatch(items, batch);
  const size_t logits = batch.logit_rows.size() * static_cast<size_t>(state_.model.model->vocab_size());
  if (logits > logits_.capacity()) {  // what is estimated, not twice as many
    logits_ = {};
    logits_.reserve(logits);
  }
  logits_.resize(logits);
  hidden_.resize(batch.hidden_rows.size() * static_cast<size_t>(state_.model.model->hidden_size()));
  const auto kernels_before = state_.pool.busy();
  state_.model.model->Forward(batch, *step, state_.pool, models::Outputs(logits_, hidden_));
  counters_.kernel_time += state_.pool.busy() - kernels_before;
  step->Commit();
  step.reset();
  ++counters_.steps;
  int32_t decoding = 0;
  int32_t prefill = 0;
  int32_t forced = 0;
  for (const auto& item : items) {
    if (state_.running[item.sequence]->generation->sequence().prefill_left() > 0) {
      prefill += item.tokens;
    } else {
      ++decoding;
      forced += state_.running[item.sequence]->generation->sequence().decode_left() - 1;
    }
  }
  Advance(items, prefill);
  const auto sampling = Sample(items);
  Pool(items);
  if (state_.limits.check_invariants_every > 0 &&
      counters_.steps % static_cast<uint64_t>(state_.limits.check_invariants_every) == 0) {
    if (auto checked = state_.CheckInvariants(); !checked) {
      std::fprintf(stderr, "quire-runner: %s\n", checked.error().c_str());
      std::abort();
    }
  }
  const auto took = Clock::now() - begin;
  counters_.step_time += took;
  sampling_share_.EndStep(took - sampling);
  last_ = {.sequences = static_cast<int32_t>(items.size()),
           .decoding = decoding,
           .prefill_tokens = prefill,
           .draft_tokens = static_cast<int32_t>(drafts_.drafted() - drafted_before),
           .took = took};
  if (prefill == 0) {
    drafts_.lengths().ObserveStep(static_cast<int32_t>(batch.tokens.size()), took);
    const auto accepted = static_cast<int32_t>(drafts_.accepted() - accepted_before);
    drafts_.lengths().ObserveOutcome(decoding + accepted, Clock::now() - draft_begin);
  }
  // Beside a sequence that decodes they cost what prompt tokens do.
  budget_.Observe(decoding, prefill + forced, took);
  return true;
}

void BatchStep::Advance(const std::vector<StepItem>& items, int32_t prefill) {
  state_.prefixes.AdvanceClock();
  std::vector<bool>& scheduled = scratch_.scheduled;
  scheduled.assign(state_.running.size(), false);
  for (const auto& item : items) {
    ActiveRequest& request = *state_.running[item.sequence];
    scheduled[item.sequence] = true;
    const int32_t prompt_left =
        request.generation->sequence().prompt_tokens() - request.generation->sequence().computed();
    counters_.prompt_tokens_computed += static_cast<uint64_t>(std::clamp(prompt_left, 0, item.tokens));
    counters_.tokens_computed += static_cast<uint64_t>(item.tokens);
    state_.Charge(request.party, item.tokens);
    if (request.running().draft.open) continue;  // how many of them belong to it is yet to be seen
    request.generation->Computed(item.tokens);
    PromptImages::Release(request);
    drafts_.StoreHidden(request, hidden_, item.tokens, item.tokens);
    state_.prefixes.Collect(request);
  }
  for (size_t i = 0; i < state_.running.size(); ++i) {
    if (!scheduled[i] && state_.running[i]->generation->sequence().prefill_left() > 0)
      state_.running[i]->service.skipped_tokens += prefill;
  }
}

std::chrono::nanoseconds BatchStep::Sample(const std::vector<StepItem>& items) {
  // The time of this thread: while another process has the core it does not run.
  const auto now = [this] {
    return state_.limits.sampling_clock ? state_.limits.sampling_clock() : WorkBudget::CpuTime();
  };
  std::chrono::nanoseconds all{};
  const auto vocab = static_cast<size_t>(state_.model.model->vocab_size());
  size_t row = 0;
  for (const auto& item : items) {
    ActiveRequest& request = *state_.running[item.sequence];
    ActiveGeneration& generation = *request.generation;
    const auto begin = now();
    const auto scored_rows = static_cast<size_t>(request.running().scored_rows);
    if (scored_rows > 0) Score(generation, std::span(logits_).subspan(row * vocab, scored_rows * vocab));
    row += scored_rows;
    const auto sample_begin = scored_rows > 0 ? now() : begin;
    if (request.running().draft.open) {
      const size_t rows = request.running().draft.tokens.size() + 1;
      const int32_t rejected = drafts_.Verify(
          request, item, std::span(logits_).subspan(row * vocab, rows * vocab), hidden_, workspace_);
      counters_.tokens_computed -= static_cast<uint64_t>(rejected);
      state_.prefixes.Collect(request);
      row += rows;
    } else if (request.embedding || !generation.sequence().AllComputedAfter(0)) {
      continue;
    } else {
      generation.Sample(std::span(logits_).subspan(row++ * vocab, vocab), workspace_);
      if (const auto kind = generation.choice().kind()) sampling_times_[*kind] = now() - sample_begin;
    }
    const auto end = now();
    const auto took = end - begin;
    request.service.sampling_time = end - sample_begin;
    request.service.last_sampled = counters_.steps;
    sampling_share_.Charge(request.party, took);
    all += took;
    if (generation.needs_shift()) Shift(request);
  }
  return all;
}

// `logits`: [rows, vocab], of rows of its prompt. A large vocabulary takes a millisecond each.
void BatchStep::Score(ActiveGeneration& generation, std::span<const float> logits) {
  const auto vocab = static_cast<size_t>(state_.model.model->vocab_size());
  const auto tokens = generation.ScoredTokens();
  std::vector<api::Result<sampler::Logprobs>> scores(logits.size() / vocab);
  state_.pool.ParallelFor(scores.size(), [&](size_t row) noexcept {
    scores[row] =
        sampler::ComputeLogprobs(logits.subspan(row * vocab, vocab), tokens[row], generation.report().top());
  });
  generation.ReportPrompt(scores);
}

void BatchStep::Pool(const std::vector<StepItem>& items) {
  const auto width = static_cast<size_t>(state_.model.model->hidden_size());
  for (const auto& item : items) {
    ActiveRequest& request = *state_.running[item.sequence];
    if (!request.embedding) continue;
    const Embedding& embedding = *request.embedding;
    models::Pooler& pooler = *request.embedding->pooler;
    const size_t rows = pooler.RowsOf(item.tokens).size();
    pooler.Add(item.tokens, std::span(hidden_).subspan(request.running().hidden_begin * width, rows * width));
    if (!request.generation->sequence().AllComputedAfter(0)) continue;
    std::vector<float> vector = pooler.Finish(embedding.dimensions, embedding.normalize);
    if (embedding.rank) vector = {state_.model.rank->Score(vector)};
    request.generation->FinishEmbedding(std::move(vector));
  }
}

// Moves keys where every layer allows it; elsewhere what stays is a new prompt.
void BatchStep::Shift(ActiveRequest& request) {
  CacheState& cached = request.running().cached;
  const TokenSequence::Range range = request.generation->ShiftRange();
  const bool moved =
      rotate_keys_ && state_.cache->RemoveRange(cached.sequence, range.begin, range.end, rotate_keys_);
  request.generation->Shift(range, moved);
  cached.lease = {};
  request.boundaries.clear();  // of a prompt that is no longer whole
  request.restore_points.clear();
  PrefixReuse::Outcome reuse;
  if (moved) {
    cached.exact = false;
    cached.shared_tokens = std::min(cached.shared_tokens, range.begin);
  } else {
    cached.sequence = {};
    reuse = state_.prefixes.AttachPrefix(request, state_.running);
    request.generation->Start(reuse.reused, {.miss = reuse.miss});
  }
  drafts_.Start(request, reuse);
}

}  // namespace quire::runner::engine
