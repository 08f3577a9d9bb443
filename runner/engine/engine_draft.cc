// Guessing ahead: what may come next is computed with the newest token, and what the sampler then chooses
// decides how much of it stays. Every token is sampled from the logits it would have been sampled from
// without a guess, so nothing of this shows in any answer.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "runner/engine/engine.h"

namespace quire::runner::engine {
namespace {

constexpr int32_t kTextDepthMax = 15;  // tokens guessed of one sequence from its own text
constexpr int32_t kModelDepthMax = 8;  // and by a draft model
constexpr ptrdiff_t kStatesKept = 64;  // hidden states that wait to be read, of one sequence

}  // namespace

void Engine::StartDraft(ActiveRequest& request, const PrefixReuse::Outcome& reuse) {
  Draft& draft = request.draft;
  draft.text.Clear();
  draft.hidden.clear();
  draft.trail.reset();
  if (!drafter_ || request.embedding || !request.generation->WantsDrafts()) return;
  draft.trail =
      drafter_->Begin({.isolation = request.isolation,
                       .tokens = request.generation->tokens(),
                       .boundaries = request.boundaries,
                       .neighbour = reuse.source == nullptr ? nullptr : reuse.source->draft.trail.get(),
                       .shared = reuse.reused});
}

void Engine::EndDraft(ActiveRequest& request) {
  if (!request.draft.trail) return;
  drafter_->End(std::move(request.draft.trail), request.generation->tokens());
}

// Leaves the round it could guess in scratch_.rounds, with tokens found in the text where those are best.
void Engine::ConsiderGuessing(ActiveRequest& request, int32_t rows) {
  const Generation& generation = *request.generation;
  Draft& draft = request.draft;
  const int32_t most = generation.DraftLimit(kTextDepthMax);
  if (most == 0) return;
  const auto round = [&](draft::Source source, int32_t kind, int32_t depth) {
    auto& track = draft.tracks[static_cast<size_t>(source)];
    return draft::Candidate{.source = source, .first_kind = kind, .most = depth, .track = &track};
  };
  const auto tokens = generation.tokens();
  draft.text.Extend(tokens);
  const int32_t match = draft.text.Find(tokens, most, draft.tokens);
  if (match > 0) draft.round = round(draft::Source::kText, match, most);
  if (draft.trail) {
    const auto by_model = round(draft::Source::kModel, 0, std::min(most, kModelDepthMax));
    if (match == 0 || depths_.Better(by_model, draft.round, rows)) draft.round = by_model;
  } else if (match == 0) {
    return;
  }
  draft.guesses = true;
  scratch_.rounds.push_back(draft.round);
}

void Engine::Guess() {
  scratch_.rounds.clear();
  int32_t rows = 0;
  for (const auto& request : running_) {
    request->draft.tokens.clear();
    request->draft.guesses = false;
    if (!request->generation->reader_full()) rows += request->generation->decode_left();
  }
  for (const auto& request : running_) {
    if (request->generation->decode_left() > 0 && !request->generation->reader_full()) {
      ConsiderGuessing(*request, rows);
    }
  }
  // Memory for results was counted for so many rows.
  depths_.Plan(scratch_.rounds, rows, std::max(limits_.running_max - rows, 0));
  if (limits_.draft_tokens > 0) {
    for (auto& round : scratch_.rounds) round.depth = std::min(round.most, limits_.draft_tokens);
  }
  auto round = scratch_.rounds.begin();
  for (const auto& request : running_) {
    Draft& draft = request->draft;
    if (!draft.guesses) continue;
    draft.round = *round++;
    const bool found = draft.round.source == draft::Source::kText;
    draft.tokens.resize(found ? static_cast<size_t>(draft.round.depth) : 0);
  }
  if (drafter_) AskDrafter();
}

// Prompts are followed as they are computed, so that the first guess does not wait for all of one.
void Engine::AskDrafter() {
  std::vector<draft::Wish>& wishes = scratch_.wishes;
  wishes.clear();
  const auto width = static_cast<ptrdiff_t>(model_.model->hidden_size());
  for (const auto& request : running_) {
    Draft& draft = request->draft;
    const Generation& generation = *request->generation;
    if (!draft.trail) continue;
    draft::Wish wish{.trail = draft.trail.get(),
                     .tokens = generation.tokens(),
                     .target = &request->sequence,
                     .hidden = draft.hidden,
                     .depth = 0,
                     .guesses = nullptr};
    if (draft.guesses && draft.round.source == draft::Source::kModel) {
      wish.depth = draft.round.depth;
      wish.guesses = &draft.tokens;
    }
    const bool prefills = generation.prefill_left() > 0 && generation.computed() > 0;
    if (prefills) wish.tokens = wish.tokens.first(static_cast<size_t>(generation.computed()) + 1);
    const bool follow = drafter_->follows() && (prefills || std::ssize(draft.hidden) > kStatesKept * width);
    if (wish.depth > 0 || follow) wishes.push_back(wish);
  }
  if (wishes.empty()) return;
  const auto begin = Clock::now();
  drafter_->Guess(wishes, pool_);
  const auto took = Clock::now() - begin;
  if (drafter_->hidden_wanted() == draft::HiddenWanted::kAll) {
    for (const auto& request : running_) {
      const auto asked = [&](const draft::Wish& wish) { return wish.trail == request->draft.trail.get(); };
      if (std::ranges::any_of(wishes, asked)) request->draft.hidden.clear();
    }
  }
  int32_t guessed = 0;
  bool followed = false;
  for (const draft::Wish& wish : wishes) {
    const size_t count = wish.guesses == nullptr ? 0 : wish.guesses->size();
    guessed += static_cast<int32_t>(count);
    followed = followed || count == 0;
  }
  if (!followed) depths_.ObserveDraft(guessed, took);
}

void Engine::AddGuesses(std::vector<StepItem>& items) {
  for (StepItem& item : items) {
    ActiveRequest& request = *running_[item.sequence];
    Draft& draft = request.draft;
    if (draft.tokens.empty()) continue;
    auto open = cache_->Speculate(request.sequence, cache::DraftMode::kLive);
    if (!open) {
      draft.tokens.clear();
      continue;
    }
    draft.open.emplace(*std::move(open));
    item.tokens += static_cast<int32_t>(draft.tokens.size());
  }
}

bool Engine::DropGuesses() {
  bool dropped = false;
  for (const auto& request : running_) {
    dropped = dropped || request->draft.open;
    request->draft.open.reset();
    request->draft.tokens.clear();
  }
  return dropped;
}

void Engine::Settle(ActiveRequest& request, const StepItem& item, std::span<const float> logits) {
  Generation& generation = *request.generation;
  Draft& draft = request.draft;
  const auto drafted = static_cast<int32_t>(draft.tokens.size());
  const int32_t certain = item.tokens - drafted;
  const auto uncomputed = generation.Uncomputed(certain);
  std::vector<api::TokenId>& rows = scratch_.rows;
  rows.assign(uncomputed.begin(), uncomputed.end());
  rows.insert(rows.end(), draft.tokens.begin(), draft.tokens.end());
  const int32_t kept = generation.SampleThrough(rows, logits, sampling_workspace_);
  const auto begin = Clock::now();
  const auto replay = [this](size_t layer, std::byte* slot, std::span<const std::byte> inputs,
                             int32_t tokens) { model_.model->Replay(layer, slot, inputs, tokens, pool_); };
  if (auto committed = draft.open->Commit(kept, replay); !committed) {
    std::fprintf(stderr, "quire-runner: a draft cannot be settled: %s\n", committed.error().message.c_str());
    std::abort();
  }
  draft.open.reset();
  generation.NoteRollback(Clock::now() - begin);
  generation.Computed(kept);
  const int32_t accepted = kept - certain;
  KeepHidden(request, certain, kept);
  depths_.ObserveRound(draft.round, drafted, accepted);
  drafted_ += static_cast<uint64_t>(drafted);
  accepted_ += static_cast<uint64_t>(accepted);
  tokens_computed_ -= static_cast<uint64_t>(drafted - accepted);
  prefixes_.Collect(request);
}

// A sequence whose drafter reads hidden states has rows for them: of all its tokens, or of those that may
// turn out to be its last. `certain`: tokens of the step that are no guesses.
void Engine::AddHiddenRows(const ActiveRequest& request, int32_t begin, int32_t certain,
                           models::Batch& batch) {
  if (!request.draft.trail || drafter_->hidden_wanted() == draft::HiddenWanted::kNone) return;
  const bool all = drafter_->hidden_wanted() == draft::HiddenWanted::kAll;
  if (!all && !request.generation->AllComputedAfter(certain)) return;
  for (int32_t row = all ? begin : begin + certain - 1; row < batch.row_begin.back(); ++row) {
    batch.hidden_rows.push_back(row);
  }
}

// Of a step's `rows` the first `kept` are in the caches now.
void Engine::KeepHidden(ActiveRequest& request, int32_t certain, int32_t kept) {
  Draft& draft = request.draft;
  if (!draft.trail || drafter_->hidden_wanted() == draft::HiddenWanted::kNone) return;
  const auto width = static_cast<size_t>(model_.model->hidden_size());
  const auto states = [&](int32_t first, int32_t count) {
    return std::span(hidden_).subspan((request.hidden_begin + static_cast<size_t>(first)) * width,
                                      static_cast<size_t>(count) * width);
  };
  if (drafter_->hidden_wanted() == draft::HiddenWanted::kAll) {
    const auto fresh = states(0, kept);
    draft.hidden.insert(draft.hidden.end(), fresh.begin(), fresh.end());
  } else if (request.generation->prefill_left() == 0) {
    const auto last = states(kept - certain, 1);
    draft.hidden.assign(last.begin(), last.end());
  }
}

}  // namespace quire::runner::engine
