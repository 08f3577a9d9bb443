// DRY with many sequence breakers: the same penalties as by searching each breaker, and each token read once.
#include "runner/sampler/dry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "runner/sampler/breaker_scan.h"

namespace quire::runner::sampler {
namespace {

using api::TokenId;

constexpr size_t kTail = 320;  // tokens in which breakers are looked for
constexpr size_t kLongest = 256;

// The definitions, one search for each breaker.
struct SlowBreakers {
  const std::vector<std::string>& texts;
  const std::vector<std::string>& breakers;

  bool Contains(TokenId token) const {
    return std::ranges::any_of(breakers, [&](const std::string& breaker) {
      return !breaker.empty() && texts[static_cast<size_t>(token)].find(breaker) != std::string::npos;
    });
  }

  size_t CountUnbroken(std::span<const TokenId> history, size_t window) const {
    const auto tail = history.last(std::min({history.size(), window, kTail}));
    std::string text;
    std::vector<size_t> ends;  // of each token's text
    for (const TokenId token : tail) {
      text += texts[static_cast<size_t>(token)];
      ends.push_back(text.size());
    }
    size_t broken = 0;
    for (const std::string& breaker : breakers) {
      const size_t found = breaker.empty() ? std::string::npos : text.rfind(breaker);
      if (found == std::string::npos) continue;
      const auto token = std::ranges::lower_bound(ends, found + breaker.size());
      broken = std::max(broken, static_cast<size_t>(token - ends.begin()) + 1);
    }
    return tail.size() - broken;
  }
};

void ApplySlowly(const api::GenerationParams& params, const SlowBreakers& breakers,
                 std::span<const TokenId> history, std::span<float> logits) {
  const size_t window =
      params.dry_penalty_last_n < 0 ? history.size() : static_cast<size_t>(params.dry_penalty_last_n);
  const size_t limit = std::min(breakers.CountUnbroken(history, window), kLongest);
  history = history.last(std::min(history.size(), window));
  const auto allowed = static_cast<size_t>(std::max(params.dry_allowed_length, 1));
  std::map<TokenId, size_t> longest;
  for (size_t i = 1; i < history.size(); ++i) {
    size_t length = 0;
    while (length < limit && i + length < history.size() &&
           history[history.size() - 1 - length] == history[history.size() - 1 - i - length])
      ++length;
    if (length < allowed) continue;
    size_t& best = longest[history[history.size() - i]];
    best = std::max(best, length);
  }
  for (const auto& [token, length] : longest) {
    if (breakers.Contains(token)) continue;
    float& logit = logits[static_cast<size_t>(token)];
    const double penalty =
        double{params.dry_multiplier} * std::pow(std::max(double{params.dry_base}, 1.0),
                                                 static_cast<double>(length) - static_cast<double>(allowed));
    logit =
        static_cast<float>(std::max(double{logit} - penalty, double{std::numeric_limits<float>::lowest()}));
  }
}

std::string RandomText(std::mt19937& random, size_t size) {
  std::string text(size, ' ');
  for (char& c : text) c = "ab \n"[random() % 4];
  return text;
}

// Goes on by a few tokens, often as it went before; now and then it loses a part, as at a shift of the
// context.
void Change(std::mt19937& random, size_t vocabulary, std::vector<TokenId>& history) {
  if (random() % 20 == 0 && history.size() > 10) {
    const auto at = history.begin() + static_cast<std::ptrdiff_t>(random() % (history.size() / 2));
    history.erase(at, at + static_cast<std::ptrdiff_t>(random() % 5));
  }
  if (random() % 30 == 0) history.resize(history.size() / 2);
  const size_t added = random() % 40 == 0 ? 400 : random() % 4;
  const size_t from = history.empty() ? 0 : random() % history.size();
  const bool repeats = !history.empty() && random() % 2 == 0;
  for (size_t i = 0; i < added; ++i) {
    const auto fresh = static_cast<TokenId>(random() % vocabulary);
    history.push_back(repeats ? history[from + i] : fresh);
  }
}

TEST(DryBreakers, PenaltiesAreThoseOfSearchingEachBreaker) {
  std::mt19937 random(5);
  size_t penalized = 0;
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    std::vector<std::string> texts;
    const size_t vocabulary = 2 + random() % 30;
    while (texts.size() < vocabulary) texts.push_back(RandomText(random, random() % 5));
    if (round % 4 == 0) texts.back() = std::string(128, ' ');
    api::GenerationParams params;
    params.dry_multiplier = 1.5F;
    params.dry_allowed_length = 1 + static_cast<int32_t>(random() % 3);
    params.dry_penalty_last_n = std::vector<int32_t>{-1, 1, 4, 100, 500}[random() % 5];
    params.dry_sequence_breakers.clear();
    // Long ones reach from before the tail into it.
    for (size_t i = random() % 12; i > 0; --i) {
      params.dry_sequence_breakers.push_back(RandomText(random, random() % 8));
      if (round % 3 == 0)
        params.dry_sequence_breakers.push_back(std::string(100 + random() % 400, "a \n"[random() % 3]));
    }
    const SlowBreakers slow{.texts = texts, .breakers = params.dry_sequence_breakers};
    DryPenalty dry(params,
                   [&](TokenId token) { return std::string_view(texts[static_cast<size_t>(token)]); });
    std::vector<TokenId> history;
    for (int step = 0; step < 60; ++step) {
      Change(random, vocabulary, history);
      std::vector<float> actual(vocabulary, 0);
      std::vector<float> expected(vocabulary, 0);
      dry.Apply(history, actual);
      ApplySlowly(params, slow, history, expected);
      ASSERT_EQ(actual, expected) << step;
      penalized += static_cast<size_t>(vocabulary) - static_cast<size_t>(std::ranges::count(expected, 0.0F));
    }
  }
  EXPECT_GT(penalized, 1000U);
}

// A text of one letter, with breakers that end in the counted tokens and begin before the tail.
TEST(DryBreakers, ABreakerCountsWhereItBeginsInTheTail) {
  const std::vector<std::string> texts = {"a", "b"};
  for (const size_t length : {64U, 65U, 319U, 320U, 321U}) {
    const std::vector<std::string> breakers = {std::string(length - 1, 'a') + "b"};
    BreakerScan scan(
        breakers, [&](TokenId token) { return std::string_view(texts[static_cast<size_t>(token)]); }, kTail);
    const SlowBreakers slow{.texts = texts, .breakers = breakers};
    std::vector<TokenId> history(400, 0);
    history.push_back(1);
    for (int i = 0; i < 330; ++i) {
      ASSERT_EQ(scan.CountUnbroken(history, history.size()), slow.CountUnbroken(history, history.size()))
          << length << " " << i;
      history.push_back(0);
    }
  }
}

// 1,024 breakers and tokens of 128 spaces: the time of a token must not grow with the text in front of it.
TEST(DryBreakers, EachTokenIsReadOnce) {
  api::GenerationParams params;
  params.dry_multiplier = 1;
  params.dry_sequence_breakers.clear();
  for (size_t i = 0; i < 1024; ++i)
    params.dry_sequence_breakers.push_back(std::string(60, ' ') + std::to_string(i));
  const std::string spaces(128, ' ');
  size_t reads = 0;
  DryPenalty dry(params, [&](TokenId) {
    ++reads;
    return std::string_view(spaces);
  });
  std::vector<TokenId> history(4000, 7);
  std::vector<float> logits(8, 0);
  dry.Apply(history, logits);
  EXPECT_LT(logits[7], -1e30F);
  reads = 0;
  for (int i = 0; i < 1000; ++i) {
    history.push_back(7);
    dry.Apply(history, logits);
  }
  EXPECT_EQ(reads, 1000U);
}

}  // namespace
}  // namespace quire::runner::sampler
