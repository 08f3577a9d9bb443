// Filters draw the same tokens as with a sort of the whole vocabulary by comparisons, which is kept here as
// it was.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "runner/sampler/candidates.h"
#include "runner/sampler/sampler.h"
#include "runner/sampler/sort_by_key.h"

namespace quire::runner::sampler {
namespace {

constexpr float kImpossible = -std::numeric_limits<float>::infinity();

// Sorts a growing beginning. The order of the rest decides how a draw adds up.
class SlowOrder {
 public:
  SlowOrder(std::vector<Candidate>& list, size_t sorted) : list_(list), sorted_(sorted) {}

  const Candidate& At(size_t index) {
    while (index >= sorted_) {
      const size_t end = std::min(list_.size(), std::max<size_t>(4 * sorted_, 128));
      const auto from = list_.begin() + static_cast<std::ptrdiff_t>(sorted_);
      const auto to = list_.begin() + static_cast<std::ptrdiff_t>(end);
      std::nth_element(from, to - 1, list_.end(), Better);
      std::sort(from, to, Better);
      sorted_ = end;
    }
    return list_[index];
  }

 private:
  std::vector<Candidate>& list_;
  size_t sorted_;
};

// One sampler without penalties and DRY.
class SlowSampler {
 public:
  SlowSampler(const api::GenerationParams& params, RandomStream stream)
      : params_(params), stream_(stream), limit_(2 * params.mirostat_tau) {}

  float limit() const { return limit_; }

  TokenId Sample(const std::vector<float>& logits) {
    maximum_ = *std::ranges::max_element(logits);
    const double uniform = stream_.Next();
    list_.clear();
    for (size_t id = 0; id < logits.size(); ++id) {
      if (logits[id] > kImpossible) list_.push_back({.id = static_cast<TokenId>(id), .logit = logits[id]});
    }
    sorted_ = 0;
    if (params_.mirostat > 0) return DrawMirostat(uniform);
    if (params_.top_k > 0 && static_cast<size_t>(params_.top_k) < logits.size()) {
      SortAll();
      if (list_.size() > static_cast<size_t>(params_.top_k)) list_.resize(static_cast<size_t>(params_.top_k));
      sorted_ = list_.size();
    }
    Typical();
    TopP();
    MinP();
    if (params_.xtc_probability > 0 && stream_.Beside() < double{params_.xtc_probability}) ExcludeTop();
    return Draw(uniform);
  }

 private:
  double Weight(const Candidate& candidate, double temperature) const {
    return std::exp((double{candidate.logit} - double{maximum_}) / temperature);
  }

  double Weigh(double temperature) {
    weights_.clear();
    double total = 0;
    for (const Candidate& candidate : list_) total += weights_.emplace_back(Weight(candidate, temperature));
    return total;
  }

  void SortAll() {
    std::sort(list_.begin(), list_.end(), Better);
    sorted_ = list_.size();
  }

  void Typical() {
    if (!(params_.typical_p < 1)) return;
    const double total = Weigh(1);
    double entropy = 0;
    for (double& weight : weights_) {
      weight /= total;
      if (weight > 0) entropy -= weight * std::log(weight);
    }
    struct Near {
      double distance;
      double probability;
      Candidate candidate;
    };
    std::vector<Near> nearest;
    for (size_t i = 0; i < list_.size(); ++i) {
      if (weights_[i] == 0) continue;
      nearest.push_back({std::abs(-std::log(weights_[i]) - entropy), weights_[i], list_[i]});
    }
    std::sort(nearest.begin(), nearest.end(), [](const Near& a, const Near& b) {
      return a.distance < b.distance || (a.distance == b.distance && Better(a.candidate, b.candidate));
    });
    list_.clear();
    double covered = 0;
    for (const Near& near : nearest) {
      list_.push_back(near.candidate);
      covered += near.probability;
      if (covered > double{params_.typical_p}) break;
    }
    SortAll();
    maximum_ = list_.front().logit;
  }

  void TopP() {
    if (!(params_.top_p < 1)) return;
    const double target = double{params_.top_p} * Weigh(1);
    SlowOrder order(list_, sorted_);
    double covered = 0;
    size_t kept = 0;
    while (kept < list_.size()) {
      covered += Weight(order.At(kept++), 1);
      if (covered >= target) break;
    }
    list_.resize(kept);
    sorted_ = kept;
  }

  void MinP() {
    if (!(params_.min_p > 0)) return;
    const double floor = double{maximum_} + std::log(std::min(double{params_.min_p}, 1.0));
    std::erase_if(list_, [&](const Candidate& c) { return double{c.logit} < floor; });
    sorted_ = std::min(sorted_, list_.size());
  }

  void ExcludeTop() {
    SlowOrder order(list_, sorted_);
    const double least = double{params_.xtc_threshold} * Weigh(1);
    size_t likely = 0;
    while (likely < list_.size() && Weight(order.At(likely), 1) >= least) ++likely;
    if (likely < 2) return;
    SortAll();
    list_.erase(list_.begin(), list_.begin() + static_cast<std::ptrdiff_t>(likely - 1));
    maximum_ = list_.front().logit;
  }

  TokenId Draw(double uniform) {
    double left = uniform * Weigh(double{params_.temperature});
    for (size_t i = 0; i < list_.size(); ++i) {
      left -= weights_[i];
      if (left < 0) return list_[i].id;
    }
    size_t last = list_.size() - 1;
    while (last > 0 && weights_[last] == 0) --last;
    return list_[last].id;
  }

  // Version 1: from a Zipf distribution fitted to the 100 most likely.
  size_t CountWithin() const {
    double products = 0;
    double squares = 0;
    for (size_t i = 0; i + 1 < std::min<size_t>(weights_.size(), 100) && weights_[i + 1] > 0; ++i) {
      const double t = std::log(static_cast<double>(i + 2) / static_cast<double>(i + 1));
      products += t * std::log(weights_[i] / weights_[i + 1]);
      squares += t * t;
    }
    const double exponent = squares > 0 ? products / squares : 0;
    const double epsilon = exponent - 1;
    const double size = static_cast<double>(weights_.size());
    const double count =
        std::pow(epsilon * std::exp2(double{limit_}) / (1 - std::pow(size, -epsilon)), 1 / exponent);
    if (!(count < size)) return weights_.size();
    return std::max<size_t>(static_cast<size_t>(count), 1);
  }

  TokenId DrawMirostat(double uniform) {
    SortAll();
    maximum_ = list_.front().logit;
    const double total = Weigh(double{params_.temperature});
    size_t kept = 1;
    if (params_.mirostat == 1) {
      kept = CountWithin();
    } else {
      const double least = total * std::exp2(-double{limit_});
      while (kept < weights_.size() && weights_[kept] >= least) ++kept;
    }
    double within = 0;
    for (size_t i = 0; i < kept; ++i) within += weights_[i];
    double left = uniform * within;
    size_t chosen = 0;
    while (chosen + 1 < kept && (left -= weights_[chosen]) >= 0 && weights_[chosen + 1] > 0) ++chosen;
    if (list_.size() > 1) {
      const double surprise = -std::log2(weights_[chosen] / within);
      limit_ = static_cast<float>(double{limit_} -
                                  double{params_.mirostat_eta} * (surprise - double{params_.mirostat_tau}));
    }
    return list_[chosen].id;
  }

  api::GenerationParams params_;
  RandomStream stream_;
  float limit_;
  float maximum_ = 0;
  std::vector<Candidate> list_;
  size_t sorted_ = 0;
  std::vector<double> weights_;
};

// A vocabulary of a random shape: smooth, rounded as bfloat16 rounds, of few values, almost flat; some tokens
// impossible.
std::vector<float> RandomVocabulary(std::mt19937& random, size_t size) {
  const size_t shape = random() % 4;
  const float scale = std::vector<float>{0.1F, 1, 3, 12}[random() % 4];
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> logits(size);
  for (float& logit : logits) {
    logit = normal(random);
    if (shape == 1) logit = std::bit_cast<float>(std::bit_cast<uint32_t>(logit) & 0xFFFF0000U);
    if (shape == 2) logit = std::round(logit);  // both zeros, too
    if (shape == 3) logit = random() % 1000 == 0 ? logit : 1.0F;
    if (shape != 0 && random() % 8 == 0) logit = kImpossible;
  }
  logits[random() % size] = scale;  // one at least is possible
  return logits;
}

float OneOf(std::mt19937& random, const std::vector<float>& values) {
  return values[random() % values.size()];
}

api::GenerationParams RandomFilters(std::mt19937& random, size_t size) {
  api::GenerationParams params;
  params.temperature = OneOf(random, {0.3F, 1, 1, 3});
  params.repeat_penalty = 1;
  params.top_p = 1;
  params.min_p = OneOf(random, {0, 0, 0, 0.01F});
  params.top_k = std::vector<int32_t>{0, 0, 0, 1, 40, 2000, static_cast<int32_t>(size) - 1}[random() % 7];
  switch (random() % 5) {
    case 0:
      params.typical_p = OneOf(random, {0.01F, 0.5F, 0.9F, 0.9999999F});
      break;
    case 1:
      params.top_p = OneOf(random, {0.1F, 0.9F, 0.9999999F});
      break;
    case 2:
      params.mirostat = 1;
      break;
    case 3:
      params.mirostat = 2;
      break;
    default:
      break;
  }
  params.mirostat_tau = OneOf(random, {0.5F, 3, 5, 30});
  params.mirostat_eta = OneOf(random, {0.1F, 1});
  if (random() % 2 == 0) {
    params.xtc_probability = OneOf(random, {0.5F, 1});
    params.xtc_threshold = OneOf(random, {0, 1e-6F, 1e-4F, 0.01F, 0.1F, 0.5F, 0.9F});
  }
  return params;
}

TEST(SortedFilters, DrawTheTokensOfASortOfTheVocabulary) {
  std::mt19937 random(11);
  const std::vector<size_t> sizes = {1, 2, 3, 17, 127, 128, 129, 500, 1023, 1024, 1025, 3000, 9000, 9001};
  Workspace workspace;
  for (uint64_t round = 0; round < 700; ++round) {
    const size_t size = round == 0 ? 152'000 : round == 1 ? 262'144 : sizes[random() % sizes.size()];
    const api::GenerationParams params = RandomFilters(random, size);
    SCOPED_TRACE(testing::Message() << "round " << round << ", " << size << " tokens");
    Sampler sampler(params, RandomStream{.seed = round});
    SlowSampler slow(params, RandomStream{.seed = round});
    for (int step = 0; step < 3; ++step) {
      const std::vector<float> logits = RandomVocabulary(random, size);
      const auto token = sampler.Sample(logits, {}, workspace);
      ASSERT_TRUE(token);
      ASSERT_EQ(*token, slow.Sample(logits)) << step;
      if (sampler.state()) {
        ASSERT_EQ(*sampler.state(), slow.limit()) << step;
      }
    }
  }
}

// A sort by comparisons takes some 17 for each element of a list as long as this one.
TEST(SortByKey, ComparesEachElementOnce) {
  std::mt19937 random(12);
  constexpr size_t kSize = 152'000;
  for (const uint32_t values : {1U, 300U, 1U << 31U}) {
    std::vector<Candidate> list;
    for (size_t i = 0; i < kSize; ++i)
      list.push_back({.id = static_cast<TokenId>(i), .logit = static_cast<float>(random() % values)});
    std::vector<Candidate> expected = list;
    std::sort(expected.begin(), expected.end(), Better);
    size_t compared = 0;
    std::vector<Candidate> spare;
    SortByKey(
        list, spare, [](const Candidate& c) { return ~std::bit_cast<uint32_t>(c.logit); },
        [&](const Candidate& a, const Candidate& b) {
          ++compared;
          return Better(a, b);
        });
    EXPECT_LE(compared, kSize) << values;
    for (size_t i = 0; i < kSize; ++i) ASSERT_EQ(list[i].id, expected[i].id) << values << " " << i;
  }
}

// The keys say little: what they leave open is sorted by comparisons.
TEST(SortByKey, SortsElementsOfTheSameKey) {
  std::mt19937 random(13);
  for (const size_t size : {0U, 1U, 1023U, 1024U, 5000U}) {
    std::vector<uint32_t> list(size);
    for (uint32_t& x : list) x = static_cast<uint32_t>(random());
    std::vector<uint32_t> expected = list;
    std::ranges::sort(expected);
    std::vector<uint32_t> spare;
    SortByKey(
        list, spare, [](uint32_t x) { return x >> 25U; }, std::less<>());
    EXPECT_EQ(list, expected) << size;
  }
}

TEST(Candidates, SortBestOrdersAnyList) {
  std::mt19937 random(14);
  std::vector<Candidate> spare;
  for (const size_t size : {0U, 10U, 2000U, 20'000U}) {
    std::vector<Candidate> list;
    for (size_t i = 0; i < size; ++i) {
      const float zero = random() % 2 == 0 ? 0.0F : -0.0F;
      list.push_back({.id = static_cast<TokenId>(i),
                      .logit = i % 3 == 0 ? zero : OneOf(random, {-3e38F, -1, 1e-40F, 7})});
    }
    std::shuffle(list.begin(), list.end(), random);
    SortBest(list, spare);
    EXPECT_TRUE(std::ranges::is_sorted(list, Better)) << size;
  }
}

}  // namespace
}  // namespace quire::runner::sampler
