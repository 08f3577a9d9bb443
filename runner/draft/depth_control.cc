#include "runner/draft/depth_control.h"

#include <algorithm>
#include <cmath>

namespace quire::runner::draft {
namespace {

constexpr double kFollow = 0.15;    // of a new measurement in the estimate
constexpr double kOutlier = 2.5;    // times the estimate; more is somebody else's work
constexpr double kRowShare = 0.02;  // of a step's cost for one more row, until measured
constexpr double kSlopeMin = 0.1;   // of that, whatever was measured
constexpr double kPriorWeight = 3;  // guesses
constexpr double kForget = 0.98;    // of a tally, with each guess
constexpr double kLearn = 0.08;     // of a surprise in a track's odds
constexpr double kOddsMax = 50;
constexpr double kFade = 0.985;    // of what came out before, with each step that guesses
constexpr double kTrustPrior = 8;  // tokens
constexpr double kTrustMin = 0.25, kTrustMax = 1.1;
constexpr double kGainMin = 1.02;  // below it guessing is not worth its risk
constexpr double kChanceMin = 0.02, kChanceMax = 0.98;
constexpr int32_t kRowsMax = 256;                         // that are measured one by one
constexpr int32_t kPatienceMin = 16, kPatienceMax = 256;  // chances let go before one is tried again
constexpr int32_t kProbeDepth = 2;

double Prior(Source source, size_t kind) {
  if (source == Source::kModel) return 0.6;
  return std::min(0.2 + 0.08 * static_cast<double>(kind), 0.85);
}

}  // namespace

double DepthControl::ChanceOfAll(Source source, size_t kind) const {
  const Tally& tally = tallies_[static_cast<size_t>(source)][kind];
  return (tally.right + kPriorWeight * Prior(source, kind)) / (tally.tried + kPriorWeight);
}

double DepthControl::Chance(Source source, int32_t kind, const Track& track) const {
  const auto index = static_cast<size_t>(std::clamp<int32_t>(kind, 0, kKinds - 1));
  const double all = ChanceOfAll(source, index);
  const double odds = all / (1 - all) * track.odds;
  return std::min(odds / (1 + odds), kChanceMax);
}

double DepthControl::StepSeconds(int32_t rows) const {
  const auto row = static_cast<size_t>(std::min(rows, kRowsMax));
  const auto known = [&](size_t at) { return at < seconds_.size() && seconds_[at] > 0; };
  if (known(row)) return seconds_[row];
  size_t below = std::min(row, seconds_.size());
  while (below > 0 && !known(below)) --below;
  size_t above = row;
  while (above < seconds_.size() && !known(above)) ++above;
  if (below == 0) return known(above) ? seconds_[above] : 0;
  const auto apart = [](size_t from, size_t to) {
    return static_cast<double>(to) - static_cast<double>(from);
  };
  if (known(above)) {
    const double slope = (seconds_[above] - seconds_[below]) / apart(below, above);
    return seconds_[below] + apart(below, row) * slope;
  }
  size_t first = 1;
  while (!known(first)) ++first;
  double slope = seconds_[first] * kRowShare;
  if (first < below) {
    slope = std::max(slope * kSlopeMin, (seconds_[below] - seconds_[first]) / apart(first, below));
  }
  return seconds_[below] + apart(below, row) * slope;
}

double DepthControl::DraftSeconds(Source source, int32_t tokens) const {
  return source == Source::kModel ? draft_seconds_ * tokens : 0;
}

bool DepthControl::Better(const Candidate& first, const Candidate& second, int32_t rows) const {
  const auto best = [&](const Candidate& candidate) {
    double gain = 0, reached = 1, tokens = rows;
    for (int32_t depth = 1; depth <= candidate.most; ++depth) {
      reached *= Chance(candidate.source, candidate.first_kind + depth - 1, *candidate.track);
      tokens += reached;
      const double seconds = StepSeconds(rows + depth) + DraftSeconds(candidate.source, depth);
      gain = std::max(gain, tokens / std::max(seconds, 1e-9));
    }
    return gain;
  };
  return best(first) > best(second);
}

void DepthControl::Plan(std::span<Candidate> candidates, int32_t rows, int32_t most) {
  const double alone = StepSeconds(rows);
  for (Candidate& candidate : candidates) candidate.depth = 0;
  if (alone <= 0) return;  // nothing is known yet
  reached_.assign(candidates.size(), 1);
  depths_.assign(candidates.size(), 0);
  double tokens = rows, drafting = 0;
  bool model = false;
  double best = tokens / alone * kGainMin;
  for (int32_t extra = 1; extra <= most; ++extra) {
    size_t next = candidates.size();
    double chance = 0;
    for (size_t i = 0; i < candidates.size(); ++i) {
      const Candidate& candidate = candidates[i];
      if (depths_[i] >= candidate.most) continue;
      const double after =
          reached_[i] * Chance(candidate.source, candidate.first_kind + depths_[i], *candidate.track);
      if (after > chance) {
        chance = after;
        next = i;
      }
    }
    if (chance < kChanceMin) break;
    reached_[next] = chance;
    ++depths_[next];
    tokens += chance;
    drafting += DraftSeconds(candidates[next].source, 1);
    model = model || candidates[next].source == Source::kModel;
    const double trust = Trust(model ? Source::kModel : Source::kText);
    const double rate = trust * tokens / (StepSeconds(rows + extra) + drafting);
    if (rate <= best) continue;
    best = rate;
    for (size_t i = 0; i < candidates.size(); ++i) candidates[i].depth = depths_[i];
  }
  for (Candidate& candidate : candidates) {
    Track& track = *candidate.track;
    track.patience = std::clamp(track.patience, kPatienceMin, kPatienceMax);
    if (candidate.depth > 0) {
      track.parked = 0;
      track.patience = kPatienceMin;
    } else if (candidate.most > 0 && ++track.parked >= track.patience && most > 0) {
      track.parked = 0;
      track.patience *= 2;
      candidate.depth = std::min({candidate.most, kProbeDepth, most});
    }
    most -= candidate.depth;
  }
  Foresee(candidates, rows);
}

double DepthControl::Trust(Source source) const {
  const Outcomes& outcomes = outcomes_[static_cast<size_t>(source)];
  if (outcomes.came.seconds <= 0 || outcomes.expected.tokens <= 0) return 1;
  const double ratio =
      outcomes.came.tokens / outcomes.came.seconds * outcomes.expected.seconds / outcomes.expected.tokens;
  // As if some steps had come out as expected.
  const double weight = outcomes.came.tokens / (outcomes.came.tokens + kTrustPrior);
  return std::clamp(std::lerp(1.0, ratio, weight), kTrustMin, kTrustMax);
}

void DepthControl::Foresee(std::span<const Candidate> candidates, int32_t rows) {
  outlook_ = {.tokens = static_cast<double>(rows), .seconds = 0, .source = Source::kText};
  int32_t guessed = 0;
  double drafting = 0;
  for (const Candidate& candidate : candidates) {
    double reached = 1;
    for (int32_t i = 0; i < candidate.depth; ++i) {
      reached *= Chance(candidate.source, candidate.first_kind + i, *candidate.track);
      outlook_.tokens += reached;
    }
    guessed += candidate.depth;
    drafting += DraftSeconds(candidate.source, candidate.depth);
    if (candidate.depth > 0 && candidate.source == Source::kModel) outlook_.source = Source::kModel;
  }
  if (guessed > 0) outlook_.seconds = StepSeconds(rows + guessed) + drafting;
}

void DepthControl::ObserveOutcome(int32_t tokens, std::chrono::nanoseconds took) {
  if (outlook_.seconds <= 0) return;
  Outcomes& outcomes = outcomes_[static_cast<size_t>(outlook_.source)];
  const double seconds = std::min(std::chrono::duration<double>(took).count(), kOutlier * outlook_.seconds);
  for (Outlook* sum : {&outcomes.expected, &outcomes.came}) {
    sum->tokens *= kFade;
    sum->seconds *= kFade;
  }
  outcomes.expected.tokens += outlook_.tokens;
  outcomes.expected.seconds += outlook_.seconds;
  outcomes.came.tokens += tokens;
  outcomes.came.seconds += seconds;
}

void DepthControl::ObserveStep(int32_t rows, std::chrono::nanoseconds took) {
  if (rows <= 0 || rows > kRowsMax) return;
  const auto row = static_cast<size_t>(rows);
  if (seconds_.size() <= row) seconds_.resize(row + 1, 0);
  const double seconds = std::max(std::chrono::duration<double>(took).count(), 1e-7);
  double& estimate = seconds_[row];
  estimate = estimate == 0 ? seconds : std::lerp(estimate, std::min(seconds, estimate * kOutlier), kFollow);
}

void DepthControl::ObserveDraft(int32_t tokens, std::chrono::nanoseconds took) {
  if (tokens <= 0) return;
  const double seconds = std::chrono::duration<double>(took).count() / tokens;
  draft_seconds_ = draft_seconds_ == 0
                       ? seconds
                       : std::lerp(draft_seconds_, std::min(seconds, draft_seconds_ * kOutlier), kFollow);
}

void DepthControl::ObserveRound(const Candidate& round, int32_t drafted, int32_t accepted) {
  Track& track = *round.track;
  // Behind the first wrong one nothing was tried.
  for (int32_t i = 0; i < std::min(drafted, accepted + 1); ++i) {
    const auto kind = static_cast<size_t>(std::clamp<int32_t>(round.first_kind + i, 0, kKinds - 1));
    // One step of logistic regression: the odds move by how far off the chance was.
    const double off = (i < accepted ? 1 : 0) - Chance(round.source, round.first_kind + i, track);
    track.odds = std::clamp(track.odds * std::exp(kLearn * off), 1 / kOddsMax, kOddsMax);
    Tally& tally = tallies_[static_cast<size_t>(round.source)][kind];
    tally.tried = tally.tried * kForget + 1;
    tally.right = tally.right * kForget + (i < accepted ? 1 : 0);
  }
}

}  // namespace quire::runner::draft
