#include "runner/draft/draft_length_controller.h"

#include <algorithm>
#include <cmath>

namespace quire::runner::draft {
namespace {

constexpr double kSmoothing = 0.15;     // weight of a new measurement in the estimate
constexpr double kOutlierFactor = 2.5;  // times the estimate; a longer time is clipped
constexpr double kRowShare = 0.02;      // of a step's cost for one more row, until measured
constexpr double kSlopeMin = 0.1;       // of that, whatever was measured
constexpr double kPriorWeight = 3;      // draft tokens
constexpr double kTallyDecay = 0.98;    // factor of a tally per draft token
constexpr double kLearningRate = 0.08;  // step of the odds' logistic regression
constexpr double kOddsMax = 50;
constexpr double kCalibrationDecay = 0.985;  // factor of the sums per step with drafts
constexpr double kCalibrationPrior = 8;      // tokens
constexpr double kCalibrationMin = 0.25, kCalibrationMax = 1.1;
constexpr double kGainMin = 1.02;  // predicted gain below which nothing is drafted
constexpr double kProbabilityMin = 0.02, kProbabilityMax = 0.98;
constexpr int32_t kRowsMax = 256;                       // measured individually
constexpr int32_t kBackoffMin = 16, kBackoffMax = 256;  // skipped opportunities before a probe
constexpr int32_t kProbeLength = 2;

double Prior(Source source, size_t kind) {
  if (source == Source::kModel) return 0.6;
  return std::min(0.2 + 0.08 * static_cast<double>(kind), 0.85);
}

}  // namespace

double DraftLengthController::GlobalAcceptanceRate(Source source, size_t kind) const {
  const Tally& tally = tallies_[static_cast<size_t>(source)][kind];
  return (tally.accepted + kPriorWeight * Prior(source, kind)) / (tally.proposed + kPriorWeight);
}

double DraftLengthController::AcceptanceRate(Source source, int32_t kind,
                                             const AcceptanceStats& stats) const {
  const auto index = static_cast<size_t>(std::clamp<int32_t>(kind, 0, kKinds - 1));
  const double all = GlobalAcceptanceRate(source, index);
  const double odds = all / (1 - all) * stats.odds;
  return std::min(odds / (1 + odds), kProbabilityMax);
}

double DraftLengthController::StepSeconds(int32_t rows) const {
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

double DraftLengthController::DraftSeconds(Source source, int32_t tokens) const {
  return source == Source::kModel ? draft_seconds_ * tokens : 0;
}

bool DraftLengthController::Better(const Candidate& first, const Candidate& second, int32_t rows) const {
  const auto best = [&](const Candidate& candidate) {
    double gain = 0, reached = 1, tokens = rows;
    for (int32_t length = 1; length <= candidate.max_length; ++length) {
      reached *= AcceptanceRate(candidate.source, candidate.first_kind + length - 1, *candidate.stats);
      tokens += reached;
      const double seconds = StepSeconds(rows + length) + DraftSeconds(candidate.source, length);
      gain = std::max(gain, tokens / std::max(seconds, 1e-9));
    }
    return gain;
  };
  return best(first) > best(second);
}

void DraftLengthController::Plan(std::span<Candidate> candidates, int32_t rows, int32_t limit) {
  const double alone = StepSeconds(rows);
  for (Candidate& candidate : candidates) candidate.length = 0;
  if (alone <= 0) return;  // nothing is known yet
  reached_.assign(candidates.size(), 1);
  lengths_.assign(candidates.size(), 0);
  double tokens = rows, drafting = 0;
  bool model = false;
  double best = tokens / alone * kGainMin;
  for (int32_t extra = 1; extra <= limit; ++extra) {
    size_t next = candidates.size();
    double probability = 0;
    for (size_t i = 0; i < candidates.size(); ++i) {
      const Candidate& candidate = candidates[i];
      if (lengths_[i] >= candidate.max_length) continue;
      const double after = reached_[i] * AcceptanceRate(candidate.source, candidate.first_kind + lengths_[i],
                                                        *candidate.stats);
      if (after > probability) {
        probability = after;
        next = i;
      }
    }
    if (probability < kProbabilityMin) break;
    reached_[next] = probability;
    ++lengths_[next];
    tokens += probability;
    drafting += DraftSeconds(candidates[next].source, 1);
    model = model || candidates[next].source == Source::kModel;
    const double calibration = CalibrationFactor(model ? Source::kModel : Source::kPromptLookup);
    const double rate = calibration * tokens / (StepSeconds(rows + extra) + drafting);
    if (rate <= best) continue;
    best = rate;
    for (size_t i = 0; i < candidates.size(); ++i) candidates[i].length = lengths_[i];
  }
  for (Candidate& candidate : candidates) {
    AcceptanceStats& stats = *candidate.stats;
    stats.backoff = std::clamp(stats.backoff, kBackoffMin, kBackoffMax);
    if (candidate.length > 0) {
      stats.skipped = 0;
      stats.backoff = kBackoffMin;
    } else if (candidate.max_length > 0 && ++stats.skipped >= stats.backoff && limit > 0) {
      stats.skipped = 0;
      stats.backoff *= 2;
      candidate.length = std::min({candidate.max_length, kProbeLength, limit});
    }
    limit -= candidate.length;
  }
  Predict(candidates, rows);
}

double DraftLengthController::CalibrationFactor(Source source) const {
  const Calibration& calibration = calibrations_[static_cast<size_t>(source)];
  if (calibration.observed.seconds <= 0 || calibration.predicted.tokens <= 0) return 1;
  const double ratio = calibration.observed.tokens / calibration.observed.seconds *
                       calibration.predicted.seconds / calibration.predicted.tokens;
  // Prior: some steps matched their prediction.
  const double weight = calibration.observed.tokens / (calibration.observed.tokens + kCalibrationPrior);
  return std::clamp(std::lerp(1.0, ratio, weight), kCalibrationMin, kCalibrationMax);
}

void DraftLengthController::Predict(std::span<const Candidate> candidates, int32_t rows) {
  forecast_ = {.tokens = static_cast<double>(rows), .seconds = 0, .source = Source::kPromptLookup};
  int32_t drafted = 0;
  double drafting = 0;
  for (const Candidate& candidate : candidates) {
    double reached = 1;
    for (int32_t i = 0; i < candidate.length; ++i) {
      reached *= AcceptanceRate(candidate.source, candidate.first_kind + i, *candidate.stats);
      forecast_.tokens += reached;
    }
    drafted += candidate.length;
    drafting += DraftSeconds(candidate.source, candidate.length);
    if (candidate.length > 0 && candidate.source == Source::kModel) forecast_.source = Source::kModel;
  }
  if (drafted > 0) forecast_.seconds = StepSeconds(rows + drafted) + drafting;
}

void DraftLengthController::ObserveOutcome(int32_t tokens, std::chrono::nanoseconds took) {
  if (forecast_.seconds <= 0) return;
  Calibration& calibration = calibrations_[static_cast<size_t>(forecast_.source)];
  const double seconds =
      std::min(std::chrono::duration<double>(took).count(), kOutlierFactor * forecast_.seconds);
  for (Forecast* sum : {&calibration.predicted, &calibration.observed}) {
    sum->tokens *= kCalibrationDecay;
    sum->seconds *= kCalibrationDecay;
  }
  calibration.predicted.tokens += forecast_.tokens;
  calibration.predicted.seconds += forecast_.seconds;
  calibration.observed.tokens += tokens;
  calibration.observed.seconds += seconds;
}

void DraftLengthController::ObserveStep(int32_t rows, std::chrono::nanoseconds took) {
  if (rows <= 0 || rows > kRowsMax) return;
  const auto row = static_cast<size_t>(rows);
  if (seconds_.size() <= row) seconds_.resize(row + 1, 0);
  const double seconds = std::max(std::chrono::duration<double>(took).count(), 1e-7);
  double& estimate = seconds_[row];
  estimate =
      estimate == 0 ? seconds : std::lerp(estimate, std::min(seconds, estimate * kOutlierFactor), kSmoothing);
}

void DraftLengthController::ObserveDraft(int32_t tokens, std::chrono::nanoseconds took) {
  if (tokens <= 0) return;
  const double seconds = std::chrono::duration<double>(took).count() / tokens;
  draft_seconds_ =
      draft_seconds_ == 0
          ? seconds
          : std::lerp(draft_seconds_, std::min(seconds, draft_seconds_ * kOutlierFactor), kSmoothing);
}

void DraftLengthController::ObserveRound(const Candidate& round, int32_t drafted, int32_t accepted) {
  AcceptanceStats& stats = *round.stats;
  // Tokens behind the first rejected one were not verified.
  for (int32_t i = 0; i < std::min(drafted, accepted + 1); ++i) {
    const auto kind = static_cast<size_t>(std::clamp<int32_t>(round.first_kind + i, 0, kKinds - 1));
    // One step of logistic regression: the odds move by the prediction error.
    const double error = (i < accepted ? 1 : 0) - AcceptanceRate(round.source, round.first_kind + i, stats);
    stats.odds = std::clamp(stats.odds * std::exp(kLearningRate * error), 1 / kOddsMax, kOddsMax);
    Tally& tally = tallies_[static_cast<size_t>(round.source)][kind];
    tally.proposed = tally.proposed * kTallyDecay + 1;
    tally.accepted = tally.accepted * kTallyDecay + (i < accepted ? 1 : 0);
  }
}

}  // namespace quire::runner::draft
