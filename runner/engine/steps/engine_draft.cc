#include "runner/engine/steps/engine_draft.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace quire::runner::engine {
namespace {

constexpr int32_t kPromptLookupMax = 15;  // draft tokens of one sequence by prompt lookup
constexpr int32_t kModelDraftMax = 8;     // and by a draft model
constexpr ptrdiff_t kStatesKept = 64;     // hidden states that wait to be read, of one sequence

}  // namespace

void Drafts::Start(ActiveRequest& request, const PrefixReuse::Outcome& reuse) {
  Draft& draft = request.running().draft;
  draft.ngrams.Clear();
  draft.hidden.clear();
  draft.state.reset();
  if (!state_.drafter || request.embedding || !request.generation->AllowsDrafts()) return;
  draft.state = state_.drafter->CreateState(
      {.isolation = request.isolation,
       .tokens = request.generation->sequence().tokens(),
       .boundaries = request.boundaries,
       .neighbor = reuse.source == nullptr ? nullptr : reuse.source->running().draft.state.get(),
       .shared = reuse.reused,
       .owner = request.party.name()});
}

void Drafts::End(ActiveRequest& request) {
  auto* const runs = std::get_if<RunningRequest>(&request.state);
  if (runs == nullptr || !runs->draft.state) return;
  state_.drafter->End(std::move(runs->draft.state), request.generation->sequence().tokens());
}

// Appends the better of prompt lookup and draft model to rounds_, with the tokens of a lookup.
void Drafts::ChooseSource(ActiveRequest& request, int32_t rows) {
  const ActiveGeneration& generation = *request.generation;
  Draft& draft = request.running().draft;
  const int32_t limit = generation.DraftLimit(kPromptLookupMax);
  if (limit == 0) return;
  const auto round = [&](draft::Source source, int32_t kind, int32_t length) {
    auto& acceptance = request.service.acceptance[static_cast<size_t>(source)];
    return draft::Candidate{.source = source, .first_kind = kind, .max_length = length, .stats = &acceptance};
  };
  const auto tokens = generation.sequence().tokens();
  draft.ngrams.Extend(tokens);
  const int32_t match = draft.ngrams.Find(tokens, limit, draft.tokens);
  if (match > 0) draft.round = round(draft::Source::kPromptLookup, match, limit);
  if (draft.state) {
    const auto by_model = round(draft::Source::kModel, 0, std::min(limit, kModelDraftMax));
    if (match == 0 || lengths_.Better(by_model, draft.round, rows)) draft.round = by_model;
  } else if (match == 0) {
    return;
  }
  draft.has_round = true;
  rounds_.push_back(draft.round);
}

void Drafts::Propose() {
  rounds_.clear();
  int32_t rows = 0;
  for (const auto& request : state_.running) {
    request->running().draft.tokens.clear();
    request->running().draft.has_round = false;
    if (!Pauses(*request)) rows += request->generation->sequence().decode_left();
  }
  for (const auto& request : state_.running) {
    if (request->generation->sequence().decode_left() > 0 && !Pauses(*request)) {
      ChooseSource(*request, rows);
    }
  }
  // Memory for results was reserved for this many rows.
  lengths_.Plan(rounds_, rows, std::max(state_.limits.running_max - rows, 0));
  if (state_.limits.draft_tokens > 0) {
    for (auto& round : rounds_) round.length = std::min(round.max_length, state_.limits.draft_tokens);
  }
  auto round = rounds_.begin();
  for (const auto& request : state_.running) {
    Draft& draft = request->running().draft;
    if (!draft.has_round) continue;
    draft.round = *round++;
    const bool by_lookup = draft.round.source == draft::Source::kPromptLookup;
    draft.tokens.resize(by_lookup ? static_cast<size_t>(draft.round.length) : 0);
  }
  if (state_.drafter) RunDrafter();
}

// Prompts are followed as they are computed, so that the first draft does not wait for a whole prompt.
void Drafts::RunDrafter() {
  requests_.clear();
  const auto width = static_cast<ptrdiff_t>(state_.model.model->hidden_size());
  for (const auto& request : state_.running) {
    Draft& draft = request->running().draft;
    const ActiveGeneration& generation = *request->generation;
    if (!draft.state) continue;
    draft::DraftRequest draft_request{.state = draft.state.get(),
                                      .tokens = generation.sequence().tokens(),
                                      .target = &request->running().cached.sequence,
                                      .hidden = draft.hidden,
                                      .num_draft_tokens = 0,
                                      .draft_tokens = nullptr};
    if (draft.has_round && draft.round.source == draft::Source::kModel) {
      draft_request.num_draft_tokens = draft.round.length;
      draft_request.draft_tokens = &draft.tokens;
    }
    const bool prefills = generation.sequence().prefill_left() > 0 && generation.sequence().computed() > 0;
    if (prefills)
      draft_request.tokens =
          draft_request.tokens.first(static_cast<size_t>(generation.sequence().computed()) + 1);
    const bool follow =
        state_.drafter->follows() && (prefills || std::ssize(draft.hidden) > kStatesKept * width);
    if (draft_request.num_draft_tokens > 0 || follow) requests_.push_back(draft_request);
  }
  if (requests_.empty()) return;
  const auto begin = Clock::now();
  state_.drafter->ProposeDrafts(requests_, state_.pool);
  const auto took = Clock::now() - begin;
  if (state_.drafter->required_hidden() == draft::RequiredHidden::kAll) {
    for (const auto& request : state_.running) {
      const auto requested = [&](const draft::DraftRequest& draft_request) {
        return draft_request.state == request->running().draft.state.get();
      };
      if (std::ranges::any_of(requests_, requested)) request->running().draft.hidden.clear();
    }
  }
  int32_t drafted = 0;
  bool followed = false;
  for (const draft::DraftRequest& draft_request : requests_) {
    const size_t count = draft_request.draft_tokens == nullptr ? 0 : draft_request.draft_tokens->size();
    drafted += static_cast<int32_t>(count);
    followed = followed || count == 0;
  }
  if (!followed) lengths_.ObserveDraft(drafted, took);
}

void Drafts::Attach(std::vector<StepItem>& items) {
  for (StepItem& item : items) {
    ActiveRequest& request = *state_.running[item.sequence];
    Draft& draft = request.running().draft;
    if (draft.tokens.empty()) continue;
    auto open = state_.cache->Speculate(request.running().cached.sequence);
    if (!open) {
      draft.tokens.clear();
      continue;
    }
    draft.open.emplace(*std::move(open));
    item.tokens += static_cast<int32_t>(draft.tokens.size());
  }
}

bool Drafts::Discard() {
  bool dropped = false;
  for (const auto& request : state_.running) {
    dropped = dropped || request->running().draft.open;
    request->running().draft.open.reset();
    request->running().draft.tokens.clear();
  }
  return dropped;
}

int32_t Drafts::Verify(ActiveRequest& request, const StepItem& item, std::span<const float> logits,
                       std::span<const float> hidden, sampler::Workspace& workspace) {
  ActiveGeneration& generation = *request.generation;
  Draft& draft = request.running().draft;
  const auto drafted = static_cast<int32_t>(draft.tokens.size());
  const int32_t confirmed = item.tokens - drafted;
  const auto uncomputed = generation.sequence().Uncomputed(confirmed);
  rows_.assign(uncomputed.begin(), uncomputed.end());
  rows_.insert(rows_.end(), draft.tokens.begin(), draft.tokens.end());
  const int32_t kept = generation.SampleAndVerify(rows_, logits, workspace);
  const auto begin = Clock::now();
  const auto replay = [this](size_t layer, std::byte* slot, std::span<const std::byte> inputs,
                             int32_t tokens) {
    state_.model.model->Replay(layer, slot, inputs, tokens, state_.pool);
  };
  if (auto committed = draft.open->Commit(kept, replay); !committed) {
    std::fprintf(stderr, "quire-runner: a draft cannot be committed: %s\n",
                 committed.error().message.c_str());
    std::abort();
  }
  draft.open.reset();
  generation.RecordRollback(Clock::now() - begin);
  generation.Computed(kept);
  const int32_t accepted = kept - confirmed;
  StoreHidden(request, hidden, confirmed, kept);
  lengths_.ObserveRound(draft.round, drafted, accepted);
  drafted_ += static_cast<uint64_t>(drafted);
  accepted_ += static_cast<uint64_t>(accepted);
  return drafted - accepted;
}

// A sequence whose drafter reads hidden states has rows for them: of all its tokens, or of those that may
// turn out to be its last.
void Drafts::AddHiddenRows(const ActiveRequest& request, int32_t begin, int32_t confirmed,
                           models::Batch& batch) const {
  if (!request.running().draft.state || state_.drafter->required_hidden() == draft::RequiredHidden::kNone)
    return;
  const bool all = state_.drafter->required_hidden() == draft::RequiredHidden::kAll;
  if (!all && !request.generation->sequence().AllComputedAfter(confirmed)) return;
  for (int32_t row = all ? begin : begin + confirmed - 1; row < batch.row_begin.back(); ++row) {
    batch.hidden_rows.push_back(row);
  }
}

void Drafts::StoreHidden(ActiveRequest& request, std::span<const float> hidden, int32_t confirmed,
                         int32_t kept) const {
  Draft& draft = request.running().draft;
  if (!draft.state || state_.drafter->required_hidden() == draft::RequiredHidden::kNone) return;
  const auto width = static_cast<size_t>(state_.model.model->hidden_size());
  const auto states = [&](int32_t first, int32_t count) {
    return hidden.subspan((request.running().hidden_begin + static_cast<size_t>(first)) * width,
                          static_cast<size_t>(count) * width);
  };
  if (state_.drafter->required_hidden() == draft::RequiredHidden::kAll) {
    const auto added = states(0, kept);
    draft.hidden.insert(draft.hidden.end(), added.begin(), added.end());
  } else if (request.generation->sequence().prefill_left() == 0) {
    const auto last = states(kept - confirmed, 1);
    draft.hidden.assign(last.begin(), last.end());
  }
}

}  // namespace quire::runner::engine
