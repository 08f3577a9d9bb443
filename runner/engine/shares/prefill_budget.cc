#include "runner/engine/shares/prefill_budget.h"

#include <algorithm>
#include <bit>

namespace quire::runner::engine {
namespace {

constexpr int32_t kFirstTokens = 32;  // before anything is measured
constexpr double kMargin = 0.6;       // of what idle leaves of the target: steps vary, more than their mean
constexpr int32_t kGrowth = 4;        // a budget grows at most by this factor from one step to the next
constexpr double kEnough = 0.8;       // of the best rate of prompts alone
constexpr double kGain = 1.25;   // of the rate from one size to the next: twice as many tokens may gain more
constexpr double kWeight = 0.3;  // of a new measurement

void Blend(double& average, double value) {
  average = average == 0 ? value : average + kWeight * (value - average);
}

double Seconds(std::chrono::nanoseconds duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

size_t PrefillBudget::SizeOf(int32_t tokens) {
  return std::min<size_t>(std::bit_width(static_cast<uint32_t>(tokens)), kSizes) - 1;
}

void PrefillBudget::Observe(int32_t decoding, int32_t prefill, std::chrono::nanoseconds took) {
  const double seconds = Seconds(took);
  if (prefill == 0) {
    if (decoding <= 0) return;
    if (idle_.size() <= static_cast<size_t>(decoding)) idle_.resize(static_cast<size_t>(decoding) + 1);
    return Blend(idle_[static_cast<size_t>(decoding)], seconds);
  }
  Blend(cost_, std::max(seconds - Idle(decoding), seconds / 8) / prefill);
  if (decoding <= 0) {
    const size_t size = SizeOf(prefill);
    Blend(rates_[size], prefill / seconds);
    // Larger steps are no slower per token. One that was had weights to lay out, or a busy machine.
    for (size_t i = size + 1; i < rates_.size(); ++i) {
      if (rates_[i] < rates_[size]) rates_[i] = 0;
    }
  }
  last_ = std::max(prefill, last_ / 2);  // the short end of a prompt says nothing of the next one
}

// The nearest measured number of sequences, smaller numbers first: more sequences cost more.
double PrefillBudget::Idle(int32_t decoding) const {
  if (decoding <= 0 || idle_.empty()) return 0;
  const size_t at = std::min(static_cast<size_t>(decoding), idle_.size() - 1);
  for (size_t i = at; i > 0; --i) {
    if (idle_[i] > 0) return idle_[i];
  }
  for (size_t i = at; i < idle_.size(); ++i) {
    if (idle_[i] > 0) return idle_[i];
  }
  return 0;
}

// Seconds of a step beside streams.
double PrefillBudget::LimitBeside(double idle) const {
  const double gap = Seconds(target_.gap);
  if (idle == 0) return gap;
  const double wanted = std::clamp(idle / target_.idle_share, Seconds(target_.short_gap), gap);
  return std::max(wanted, target_.idle_factor * idle);
}

// These tokens of a step of prompts alone, or more where larger steps compute clearly faster.
int32_t PrefillBudget::Efficient(int32_t tokens) const {
  const size_t at = SizeOf(tokens);
  if (rates_[at] == 0) return tokens;
  const double longest = Seconds(target_.alone_max);
  const auto took = [&](size_t size) { return static_cast<double>(1 << size) / rates_[size]; };
  double best = 0, smaller = 0;  // rates: of any size, of sizes below the largest one
  size_t largest = at;
  for (size_t i = 0; i < rates_.size(); ++i) {
    if (rates_[i] == 0 || took(i) > longest) continue;
    smaller = best;
    best = std::max(best, rates_[i]);
    largest = i;
  }
  if (largest + 1 < kSizes && rates_[largest + 1] == 0 && rates_[largest] > kGain * smaller &&
      2 * took(largest) < longest) {
    return 1 << (largest + 1);
  }
  size_t size = at;
  while (size < largest && rates_[size] > 0 && rates_[size] < kEnough * best) ++size;
  return size == at ? tokens : std::min(1 << size, target_.tokens_max);
}

int32_t PrefillBudget::Tokens(int32_t decoding) const {
  if (cost_ == 0) return std::min(kFirstTokens, target_.tokens_max);
  const double idle = Idle(decoding);
  const double limit = decoding > 0 ? LimitBeside(idle) : Seconds(target_.alone);
  const double tokens = kMargin * (limit - idle) / cost_;
  const int32_t max_tokens = std::min(target_.tokens_max, std::max(last_, kFirstTokens) * kGrowth);
  const auto chunk = static_cast<int32_t>(std::clamp(tokens, 1.0, static_cast<double>(max_tokens)));
  return decoding > 0 ? chunk : Efficient(chunk);
}

}  // namespace quire::runner::engine
