#include "runner/sampler/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "api/base/random_id.h"
#include "runner/sampler/candidates.h"
#include "runner/sampler/dry.h"
#include "runner/sampler/mirostat.h"
#include "runner/sampler/sort_by_key.h"

namespace quire::runner::sampler {
namespace {

uint64_t Finalize(uint64_t x) {
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31U);
}

// Never falls with the distance.
uint32_t KeyOf(const RankedCandidate& r) { return std::bit_cast<uint32_t>(static_cast<float>(r.distance)); }

bool Nearer(const RankedCandidate& a, const RankedCandidate& b) {
  return a.distance < b.distance || (a.distance == b.distance && Better(a.candidate, b.candidate));
}

// The filters that follow the penalties, on one list of candidates.
class Filters {
 public:
  Filters(FilterMemory& memory, float maximum)
      : candidates_(memory.candidates), weights_(memory.weights), memory_(memory), maximum_(maximum) {}

  void TopK(std::span<const float> logits, int32_t k, Maxima& maxima) {
    if (k > 0 && static_cast<size_t>(k) < logits.size()) {
      SelectBest(logits, static_cast<size_t>(k), maxima, candidates_, memory_.spare_candidates);
      sorted_ = candidates_.size();
      return;
    }
    candidates_.clear();
    for (size_t id = 0; id < logits.size(); ++id) {
      if (logits[id] > -std::numeric_limits<float>::infinity()) {
        candidates_.push_back({.id = static_cast<TokenId>(id), .logit = logits[id]});
      }
    }
    sorted_ = 0;
  }

  // Keeps the candidates whose information is nearest to the distribution's entropy, until they make up `p`.
  void Typical(float p) {
    if (!(p < 1)) return;
    const double total = Weigh(1);
    std::vector<RankedCandidate>& ranked = memory_.ranked;
    ranked.clear();
    double entropy = 0;
    for (size_t i = 0; i < candidates_.size(); ++i) {
      const double probability = weights_[i] / total;
      if (!(probability > 0)) continue;
      const double logarithm = std::log(probability);
      entropy -= probability * logarithm;
      ranked.push_back({.distance = logarithm, .candidate = candidates_[i]});
    }
    for (RankedCandidate& r : ranked) r.distance = std::abs(-r.distance - entropy);
    SortByKey(ranked, memory_.spare_ranked, KeyOf, Nearer);
    candidates_.clear();
    double covered = 0;
    for (const RankedCandidate& r : ranked) {
      candidates_.push_back(r.candidate);
      covered += Weight(r.candidate, 1) / total;
      if (covered > double{p}) break;
    }
    Sort();
    maximum_ = candidates_.front().logit;
  }

  // Keeps the fewest of the best that make up `p`.
  void TopP(float p) {
    if (!(p < 1)) return;
    const double target = double{p} * Weigh(1);
    PartlySorted order(candidates_, sorted_, memory_.spare_candidates);
    double covered = 0;
    size_t kept = 0;
    while (kept < candidates_.size()) {
      covered += Weight(order.At(kept++), 1);
      if (covered >= target) break;
    }
    candidates_.resize(kept);
    sorted_ = kept;
  }

  // Keeps what is at least `p` times as likely as the best.
  void MinP(float p) {
    if (!(p > 0)) return;
    const double floor = double{maximum_} + std::log(std::min(double{p}, 1.0));
    std::erase_if(candidates_, [&](const Candidate& c) { return double{c.logit} < floor; });
    sorted_ = std::min(sorted_, candidates_.size());
  }

  // Keeps what is at most `distance` below the highest.
  void Below(double distance) {
    std::erase_if(candidates_,
                  [&](const Candidate& c) { return double{c.logit} < double{maximum_} - distance; });
    sorted_ = std::min(sorted_, candidates_.size());
  }

  // XTC: drops all but the last of the candidates with at least this probability.
  void ExcludeTop(float threshold) {
    const size_t likely = CountLikely(double{threshold} * Weigh(1));
    if (likely < 2) {
      // The draw adds the weights up in the order of the candidates, which this determines.
      PartlySorted(candidates_, sorted_, memory_.spare_candidates)
          .At(std::min(likely, candidates_.size() - 1));
      return;
    }
    Sort();
    candidates_.erase(candidates_.begin(), candidates_.begin() + static_cast<ptrdiff_t>(likely - 1));
    maximum_ = candidates_.front().logit;
    sorted_ = candidates_.size();
  }

  void Sort() {
    SortBest(candidates_, memory_.spare_candidates);
    sorted_ = candidates_.size();
  }

  std::span<const Candidate> candidates() const { return candidates_; }

  TokenId Draw(float temperature, double uniform) {
    double left = uniform * Weigh(double{temperature});
    for (size_t i = 0; i < candidates_.size(); ++i) {
      left -= weights_[i];
      if (left < 0) return candidates_[i].id;
    }
    // Rounding can leave a trace of the sum: it belongs to the last candidate that can come at all.
    size_t last = candidates_.size() - 1;
    while (last > 0 && weights_[last] == 0) --last;
    return candidates_[last].id;
  }

 private:
  double Weight(const Candidate& candidate, double temperature) const {
    return std::exp((double{candidate.logit} - double{maximum_}) / temperature);
  }
  // Fills weights_ and returns their sum.
  double Weigh(double temperature) {
    weights_.resize(candidates_.size());
    double total = 0;
    for (size_t i = 0; i < candidates_.size(); ++i)
      total += weights_[i] = Weight(candidates_[i], temperature);
    return total;
  }
  // How many of the best weigh at least `least`. REQUIRES: weights_ are the candidates'.
  size_t CountLikely(double least) const {
    const Candidate* unlikely = nullptr;  // the best of those that weigh less
    for (size_t i = 0; i < candidates_.size(); ++i) {
      if (weights_[i] >= least) continue;
      if (unlikely == nullptr || Better(candidates_[i], *unlikely)) unlikely = &candidates_[i];
    }
    if (unlikely == nullptr) return candidates_.size();
    const auto count =
        std::ranges::count_if(candidates_, [&](const Candidate& c) { return Better(c, *unlikely); });
    return static_cast<size_t>(count);
  }

  std::vector<Candidate>& candidates_;
  std::vector<double>& weights_;
  FilterMemory& memory_;
  float maximum_;      // of the candidates' logits
  size_t sorted_ = 0;  // candidates in order
};

// The standard deviation of the logits that may come.
double Deviation(std::span<const float> logits) {
  double sum = 0;
  size_t count = 0;
  for (const float logit : logits) {
    if (!std::isfinite(logit)) continue;
    sum += double{logit};
    ++count;
  }
  const double mean = sum / static_cast<double>(count);
  double squares = 0;
  for (const float logit : logits) {
    if (std::isfinite(logit)) squares += (double{logit} - mean) * (double{logit} - mean);
  }
  return std::sqrt(squares / static_cast<double>(count));
}

double NumberOf(uint64_t stream, uint64_t drawn) {
  const uint64_t bits = Finalize(stream + drawn * 0x9E3779B97F4A7C15U);
  return static_cast<double>(bits >> 11U) * 0x1.0p-53;
}

}  // namespace

double RandomStream::Next() { return NumberOf(Finalize(seed), ++drawn); }

double RandomStream::Beside() const {
  constexpr uint64_t kOther = 0xD1B54A32D192ED03U;
  return NumberOf(Finalize(Finalize(seed) ^ kOther), drawn);
}

std::span<const float> Workspace::Mask(std::span<const float> all, std::span<const uint64_t> allowed) {
  constexpr size_t kBits = 64;
  masked.assign(all.size(), -std::numeric_limits<float>::infinity());
  for (size_t w = 0; w < allowed.size() && w * kBits < all.size(); ++w) {
    const size_t begin = w * kBits;
    const size_t count = std::min(kBits, all.size() - begin);
    if (allowed[w] == ~uint64_t{0}) {
      std::copy_n(all.begin() + static_cast<ptrdiff_t>(begin), count,
                  masked.begin() + static_cast<ptrdiff_t>(begin));
      continue;
    }
    for (uint64_t word = allowed[w]; word != 0; word &= word - 1) {
      const size_t id = begin + static_cast<size_t>(std::countr_zero(word));
      if (id < all.size()) masked[id] = all[id];
    }
  }
  return masked;
}

RandomStream StartStream(int64_t seed) {
  if (seed >= 0) return {.seed = static_cast<uint64_t>(seed)};
  return {.seed = api::RandomBits()};
}

Sampler::~Sampler() = default;
Sampler::Sampler(Sampler&&) noexcept = default;

Sampler::Sampler(const api::GenerationParams& params, TokenText text)
    : Sampler(params, StartStream(params.seed), std::move(text)) {}

Sampler::Sampler(const api::GenerationParams& params, RandomStream stream, TokenText text)
    : temperature_(params.temperature),
      top_k_(params.top_k),
      top_p_(params.top_p),
      min_p_(params.min_p),
      typical_p_(params.typical_p),
      top_n_sigma_(params.top_n_sigma),
      xtc_probability_(params.xtc_probability),
      xtc_threshold_(params.xtc_threshold),
      repeat_window_(params.repeat_last_n),
      repeat_penalty_(params.repeat_penalty > 0 ? params.repeat_penalty : 1.0F),
      presence_penalty_(params.presence_penalty),
      frequency_penalty_(params.frequency_penalty),
      stream_(stream) {
  if (repeat_window_ < 0) {
    repeat_window_ = params.num_ctx > 0 ? params.num_ctx : std::numeric_limits<int64_t>::max();
  }
  if (DryPenalty dry(params, std::move(text)); dry.active())
    dry_ = std::make_unique<DryPenalty>(std::move(dry));
  if (Mirostat mirostat(params); mirostat.active()) mirostat_ = std::make_unique<Mirostat>(mirostat);
}

std::optional<float> Sampler::state() const {
  return mirostat_ ? std::optional(mirostat_->state()) : std::nullopt;
}

void Sampler::set_state(float state) {
  if (mirostat_) mirostat_->set_state(state);
}

bool Sampler::HasPenalties() const {
  return repeat_window_ > 0 && (repeat_penalty_ != 1 || presence_penalty_ != 0 || frequency_penalty_ != 0);
}

std::span<const float> Sampler::Penalize(std::span<const float> logits, std::span<const TokenId> history,
                                         Workspace& workspace) const {
  if (static_cast<uint64_t>(history.size()) > static_cast<uint64_t>(repeat_window_)) {
    history = history.last(static_cast<size_t>(repeat_window_));
  }
  workspace.logits.assign(logits.begin(), logits.end());
  workspace.counts.resize(logits.size());
  const auto in_vocabulary = [&](TokenId id) { return id >= 0 && static_cast<size_t>(id) < logits.size(); };
  for (const TokenId id : history) {
    if (in_vocabulary(id)) ++workspace.counts[static_cast<size_t>(id)];
  }
  for (const TokenId id : history) {
    if (!in_vocabulary(id)) continue;
    int32_t& count = workspace.counts[static_cast<size_t>(id)];
    if (count == 0) continue;  // done at its first place
    float& logit = workspace.logits[static_cast<size_t>(id)];
    if (std::isfinite(logit)) {
      double penalized =
          logit <= 0 ? double{logit} * double{repeat_penalty_} : double{logit} / double{repeat_penalty_};
      penalized -= double(count) * double{frequency_penalty_} + double{presence_penalty_};
      constexpr double kMax = std::numeric_limits<float>::max();
      logit = static_cast<float>(std::clamp(penalized, -kMax, kMax));
    }
    count = 0;
  }
  return workspace.logits;
}

api::Result<TokenId> Sampler::Sample(std::span<const float> logits, std::span<const TokenId> history,
                                     Workspace& workspace) {
  if (HasPenalties()) logits = Penalize(logits, history, workspace);
  if (dry_) {
    if (!HasPenalties()) workspace.logits.assign(logits.begin(), logits.end());
    dry_->Apply(history, workspace.logits);
    logits = workspace.logits;
  }
  auto maximum = CheckedMaximum(logits, workspace.maxima);
  if (!maximum) return std::unexpected(std::move(maximum.error()));
  const double uniform = stream_.Next();
  if (!(temperature_ > 0)) return FirstOf(logits, *maximum);
  Filters filters(workspace.filters, *maximum);
  if (mirostat_) {
    filters.TopK(logits, 0, workspace.maxima);
    filters.Sort();
    return mirostat_->Draw(filters.candidates(), workspace.filters.weights, temperature_, uniform);
  }
  filters.TopK(logits, top_k_, workspace.maxima);
  if (top_n_sigma_ > 0) filters.Below(double{top_n_sigma_} * Deviation(logits));
  filters.Typical(typical_p_);
  filters.TopP(top_p_);
  filters.MinP(min_p_);
  if (xtc_probability_ > 0 && stream_.Beside() < double{xtc_probability_}) filters.ExcludeTop(xtc_threshold_);
  return filters.Draw(temperature_, uniform);
}

}  // namespace quire::runner::sampler
