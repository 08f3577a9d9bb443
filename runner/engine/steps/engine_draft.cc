// Speculative decoding: draft tokens are computed together with the newest token, and those that the sampler
// chooses are kept. Every token is sampled from the logits it would have been sampled from without a draft,
// so the output does not change.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "runner/engine/steps/engine.h"

namespace quire::runner::engine {
namespace {

constexpr int32_t kPromptLookupMax = 15;  // draft tokens of one sequence by prompt lookup
constexpr int32_t kModelDraftMax = 8;     // and by a draft model
constexpr ptrdiff_t kStatesKept = 64;     // hidden states that wait to be read, of one sequence

}  // namespace

void Engine::StartDraft(ActiveRequest& request, const PrefixReuse::Outcome& reuse) {
  Draft& draft = request.draft;
  draft.ngrams.Clear();
  draft.hidden.clear();
  draft.state.reset();
  if (!drafter_ || request.embedding || !request.generation->AllowsDrafts()) return;
  draft.state =
      drafter_->CreateState({.isolation = request.isolation,
                             .tokens = request.generation->tokens(),
                             .boundaries = request.boundaries,
                             .neighbor = reuse.source == nullptr ? nullptr : reuse.source->draft.state.get(),
                             .shared = reuse.reused,
                             .owner = request.party});
}

void Engine::EndDraft(ActiveRequest& request) {
  if (!request.draft.state) return;
  drafter_->End(std::move(request.draft.state), request.generation->tokens());
}

// Appends the better of prompt lookup and draft model to scratch_.rounds, with the tokens of a lookup.
void Engine::ChooseDraftSource(ActiveRequest& request, int32_t rows) {
  const ActiveGeneration& generation = *request.generation;
  Draft& draft = request.draft;
  const int32_t limit = generation.DraftLimit(kPromptLookupMax);
  if (limit == 0) return;
  const auto round = [&](draft::Source source, int32_t kind, int32_t length) {
    auto& acceptance = draft.acceptance[static_cast<size_t>(source)];
    return draft::Candidate{.source = source, .first_kind = kind, .max_length = length, .stats = &acceptance};
  };
  const auto tokens = generation.tokens();
  draft.ngrams.Extend(tokens);
  const int32_t match = draft.ngrams.Find(tokens, limit, draft.tokens);
  if (match > 0) draft.round = round(draft::Source::kPromptLookup, match, limit);
  if (draft.state) {
    const auto by_model = round(draft::Source::kModel, 0, std::min(limit, kModelDraftMax));
    if (match == 0 || draft_lengths_.Better(by_model, draft.round, rows)) draft.round = by_model;
  } else if (match == 0) {
    return;
  }
  draft.has_round = true;
  scratch_.rounds.push_back(draft.round);
}

void Engine::ProposeDrafts() {
  scratch_.rounds.clear();
  int32_t rows = 0;
  for (const auto& request : running_) {
    request->draft.tokens.clear();
    request->draft.has_round = false;
    if (!Pauses(*request)) rows += request->generation->decode_left();
  }
  for (const auto& request : running_) {
    if (request->generation->decode_left() > 0 && !Pauses(*request)) {
      ChooseDraftSource(*request, rows);
    }
  }
  // Memory for results was reserved for this many rows.
  draft_lengths_.Plan(scratch_.rounds, rows, std::max(limits_.running_max - rows, 0));
  if (limits_.draft_tokens > 0) {
    for (auto& round : scratch_.rounds) round.length = std::min(round.max_length, limits_.draft_tokens);
  }
  auto round = scratch_.rounds.begin();
  for (const auto& request : running_) {
    Draft& draft = request->draft;
    if (!draft.has_round) continue;
    draft.round = *round++;
    const bool by_lookup = draft.round.source == draft::Source::kPromptLookup;
    draft.tokens.resize(by_lookup ? static_cast<size_t>(draft.round.length) : 0);
  }
  if (drafter_) RunDrafter();
}

// Prompts are followed as they are computed, so that the first draft does not wait for a whole prompt.
void Engine::RunDrafter() {
  std::vector<draft::DraftRequest>& draft_requests = scratch_.draft_requests;
  draft_requests.clear();
  const auto width = static_cast<ptrdiff_t>(model_.model->hidden_size());
  for (const auto& request : running_) {
    Draft& draft = request->draft;
    const ActiveGeneration& generation = *request->generation;
    if (!draft.state) continue;
    draft::DraftRequest draft_request{.state = draft.state.get(),
                                      .tokens = generation.tokens(),
                                      .target = &request->sequence,
                                      .hidden = draft.hidden,
                                      .num_draft_tokens = 0,
                                      .draft_tokens = nullptr};
    if (draft.has_round && draft.round.source == draft::Source::kModel) {
      draft_request.num_draft_tokens = draft.round.length;
      draft_request.draft_tokens = &draft.tokens;
    }
    const bool prefills = generation.prefill_left() > 0 && generation.computed() > 0;
    if (prefills)
      draft_request.tokens = draft_request.tokens.first(static_cast<size_t>(generation.computed()) + 1);
    const bool follow = drafter_->follows() && (prefills || std::ssize(draft.hidden) > kStatesKept * width);
    if (draft_request.num_draft_tokens > 0 || follow) draft_requests.push_back(draft_request);
  }
  if (draft_requests.empty()) return;
  const auto begin = Clock::now();
  drafter_->ProposeDrafts(draft_requests, pool_);
  const auto took = Clock::now() - begin;
  if (drafter_->required_hidden() == draft::RequiredHidden::kAll) {
    for (const auto& request : running_) {
      const auto requested = [&](const draft::DraftRequest& draft_request) {
        return draft_request.state == request->draft.state.get();
      };
      if (std::ranges::any_of(draft_requests, requested)) request->draft.hidden.clear();
    }
  }
  int32_t drafted = 0;
  bool followed = false;
  for (const draft::DraftRequest& draft_request : draft_requests) {
    const size_t count = draft_request.draft_tokens == nullptr ? 0 : draft_request.draft_tokens->size();
    drafted += static_cast<int32_t>(count);
    followed = followed || count == 0;
  }
  if (!followed) draft_lengths_.ObserveDraft(drafted, took);
}

void Engine::AttachDrafts(std::vector<StepItem>& items) {
  for (StepItem& item : items) {
    ActiveRequest& request = *running_[item.sequence];
    Draft& draft = request.draft;
    if (draft.tokens.empty()) continue;
    auto open = cache_->Speculate(request.sequence);
    if (!open) {
      draft.tokens.clear();
      continue;
    }
    draft.open.emplace(*std::move(open));
    item.tokens += static_cast<int32_t>(draft.tokens.size());
  }
}

bool Engine::DiscardDrafts() {
  bool dropped = false;
  for (const auto& request : running_) {
    dropped = dropped || request->draft.open;
    request->draft.open.reset();
    request->draft.tokens.clear();
  }
  return dropped;
}

void Engine::VerifyDraft(ActiveRequest& request, const StepItem& item, std::span<const float> logits) {
  ActiveGeneration& generation = *request.generation;
  Draft& draft = request.draft;
  const auto drafted = static_cast<int32_t>(draft.tokens.size());
  const int32_t confirmed = item.tokens - drafted;
  const auto uncomputed = generation.Uncomputed(confirmed);
  std::vector<api::TokenId>& rows = scratch_.rows;
  rows.assign(uncomputed.begin(), uncomputed.end());
  rows.insert(rows.end(), draft.tokens.begin(), draft.tokens.end());
  const int32_t kept = generation.SampleAndVerify(rows, logits, sampling_workspace_);
  const auto begin = Clock::now();
  const auto replay = [this](size_t layer, std::byte* slot, std::span<const std::byte> inputs,
                             int32_t tokens) { model_.model->Replay(layer, slot, inputs, tokens, pool_); };
  if (auto committed = draft.open->Commit(kept, replay); !committed) {
    std::fprintf(stderr, "quire-runner: a draft cannot be committed: %s\n",
                 committed.error().message.c_str());
    std::abort();
  }
  draft.open.reset();
  generation.RecordRollback(Clock::now() - begin);
  generation.Computed(kept);
  const int32_t accepted = kept - confirmed;
  StoreHiddenStates(request, confirmed, kept);
  draft_lengths_.ObserveRound(draft.round, drafted, accepted);
  drafted_ += static_cast<uint64_t>(drafted);
  accepted_ += static_cast<uint64_t>(accepted);
  tokens_computed_ -= static_cast<uint64_t>(drafted - accepted);
  prefixes_.Collect(request);
}

// A sequence whose drafter reads hidden states has rows for them: of all its tokens, or of those that may
// turn out to be its last. `confirmed`: tokens of the step that are no drafts.
void Engine::AddHiddenRows(const ActiveRequest& request, int32_t begin, int32_t confirmed,
                           models::Batch& batch) {
  if (!request.draft.state || drafter_->required_hidden() == draft::RequiredHidden::kNone) return;
  const bool all = drafter_->required_hidden() == draft::RequiredHidden::kAll;
  if (!all && !request.generation->AllComputedAfter(confirmed)) return;
  for (int32_t row = all ? begin : begin + confirmed - 1; row < batch.row_begin.back(); ++row) {
    batch.hidden_rows.push_back(row);
  }
}

// The first `kept` of a step's `rows` are in the caches now.
void Engine::StoreHiddenStates(ActiveRequest& request, int32_t confirmed, int32_t kept) {
  Draft& draft = request.draft;
  if (!draft.state || drafter_->required_hidden() == draft::RequiredHidden::kNone) return;
  const auto width = static_cast<size_t>(model_.model->hidden_size());
  const auto states = [&](int32_t first, int32_t count) {
    return std::span(hidden_).subspan((request.hidden_begin + static_cast<size_t>(first)) * width,
                                      static_cast<size_t>(count) * width);
  };
  if (drafter_->required_hidden() == draft::RequiredHidden::kAll) {
    const auto added = states(0, kept);
    draft.hidden.insert(draft.hidden.end(), added.begin(), added.end());
  } else if (request.generation->prefill_left() == 0) {
    const auto last = states(kept - confirmed, 1);
    draft.hidden.assign(last.begin(), last.end());
  }
}

}  // namespace quire::runner::engine
