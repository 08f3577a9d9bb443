// The hooks of a real model: recorded inputs and their replay, states captured on the way, keys
// rotated by a rotary embedding. Small layers with the arithmetic of their papers, compared bit by bit with
// computing the tokens in place.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <random>

#include "cache/hybrid_cache.h"

namespace quire::cache {
namespace {

constexpr ptrdiff_t kChannels = 6;
constexpr ptrdiff_t kTail = 2;  // columns; a kernel of 3
constexpr ptrdiff_t kHeads = 2;
constexpr ptrdiff_t kValueDim = 3;
constexpr ptrdiff_t kKeyDim = 4;

// A gated short convolution and a gated delta rule, as the layers of one model.
constexpr size_t kConv = 0;
constexpr size_t kDelta = 1;

// The inputs of the delta rule for a token, per head: key, value, decay and beta.
struct DeltaInput {
  float key[kHeads][kKeyDim];
  float value[kHeads][kValueDim];
  float decay[kHeads];
  float beta[kHeads];
};

// The input of the convolution for a token: the column that enters its tail.
struct ConvInput {
  float column[kChannels];
};

Layout ModelLayout() {
  return {.groups = {},
          .recurrent = {{.conv_tail = kTail, .conv_dim = kChannels, .record_bytes = sizeof(ConvInput)},
                        {.delta_heads = kHeads,
                         .delta_value_dim = kValueDim,
                         .delta_key_dim = kKeyDim,
                         .record_bytes = sizeof(DeltaInput)}}};
}

float* Tail(std::byte* slot) { return reinterpret_cast<float*>(slot + ConvOffset(ModelLayout(), kConv)); }
float* State(std::byte* slot) { return reinterpret_cast<float*>(slot + DeltaOffset(ModelLayout(), kDelta)); }

void Update(std::byte* slot, const ConvInput& input) {
  float* tail = Tail(slot);
  std::copy(tail + kChannels, tail + kTail * kChannels, tail);
  std::copy_n(input.column, kChannels, tail + (kTail - 1) * kChannels);
}

// S = decay * S;  S += beta * (v - S k) k'    (Yang et al., Gated Delta Networks, 2024)
void Update(std::byte* slot, const DeltaInput& input) {
  for (ptrdiff_t h = 0; h < kHeads; ++h) {
    for (ptrdiff_t v = 0; v < kValueDim; ++v) {
      float* row = State(slot) + (h * kValueDim + v) * kKeyDim;
      float seen = 0;
      for (ptrdiff_t k = 0; k < kKeyDim; ++k) {
        row[k] *= input.decay[h];
        seen += row[k] * input.key[h][k];
      }
      const float delta = input.beta[h] * (input.value[h][v] - seen);
      for (ptrdiff_t k = 0; k < kKeyDim; ++k) row[k] += delta * input.key[h][k];
    }
  }
}

// A layer's inputs of a token, from the token alone.
template <class Input>
Input InputOf(TokenId token) {
  Input input;
  std::mt19937 random(static_cast<uint32_t>(token));
  std::uniform_real_distribution<float> value(-1, 1);
  float floats[sizeof(Input) / sizeof(float)];
  for (float& x : floats) x = value(random);
  std::memcpy(&input, floats, sizeof input);
  return input;
}

// One recurrent layer over the new tokens of sequence 0: captures on the way, records where asked.
template <class Input>
void RunLayer(const StepView& step, size_t layer, std::span<const TokenId> tokens) {
  std::byte* slot = step.Slot(0);
  std::byte* record = step.Record(0, layer);
  const std::span<const StateCapture> captures = step.Captures(0);
  auto capture = captures.begin();
  for (int32_t t = 0; t < step.new_tokens(0); ++t) {
    if (capture != captures.end() && capture->after == t) {
      std::byte* to = (capture++)->slot;
      if (layer == kConv) std::copy_n(Tail(slot), kTail * kChannels, Tail(to));
      if (layer == kDelta) std::copy_n(State(slot), kHeads * kValueDim * kKeyDim, State(to));
    }
    const auto input = InputOf<Input>(tokens[static_cast<size_t>(t)]);
    if (record != nullptr) std::memcpy(record + static_cast<size_t>(t) * sizeof input, &input, sizeof input);
    Update(slot, input);
  }
}

void Forward(HybridCache& cache, Sequence& sequence, const std::vector<TokenId>& tokens) {
  const Append append[] = {{&sequence, static_cast<int32_t>(tokens.size())}};
  auto step = cache.Begin(append);
  ASSERT_TRUE(step.has_value()) << step.error().message;
  RunLayer<ConvInput>(**step, kConv, tokens);
  RunLayer<DeltaInput>(**step, kDelta, tokens);
  (*step)->Commit();
}

template <class Input>
void ReplayLayer(std::byte* slot, std::span<const std::byte> inputs, int32_t tokens) {
  for (size_t t = 0; t < static_cast<size_t>(tokens); ++t) {
    Input input;
    std::memcpy(&input, inputs.subspan(t * sizeof input, sizeof input).data(), sizeof input);
    Update(slot, input);
  }
}

void Replay(size_t layer, std::byte* slot, std::span<const std::byte> inputs, int32_t tokens) {
  if (layer == kConv) ReplayLayer<ConvInput>(slot, inputs, tokens);
  if (layer == kDelta) ReplayLayer<DeltaInput>(slot, inputs, tokens);
}

class RecurrentModel : public testing::Test {
 protected:
  // The state after `tokens`, computed in place, one token per step.
  std::vector<std::byte> StateAfter(const std::vector<TokenId>& tokens) {
    Sequence sequence = cache_->NewSequence();
    for (const TokenId token : tokens) Forward(*cache_, sequence, {token});
    return StateOf(sequence);
  }
  std::vector<std::byte> StateOf(Sequence& sequence) {
    const auto view = cache_->View(sequence);
    const std::byte* slot = (*view)->Slot(0);
    return {slot, slot + SlotBytes(cache_->layout())};
  }

  std::unique_ptr<HybridCache> cache_ = std::move(*HybridCache::Create(ModelLayout(), {.slots = 8}));
};

TEST_F(RecurrentModel, ReplaysRecordedInputsToTheSameBits) {
  const std::vector<TokenId> prompt = {11, 12, 13, 14};
  const std::vector<TokenId> drafted = {21, 22, 23, 24, 25};
  for (int32_t keep = 0; keep <= 5; ++keep) {
    Sequence sequence = cache_->NewSequence();
    Forward(*cache_, sequence, prompt);
    auto draft = cache_->Speculate(sequence);
    ASSERT_TRUE(draft.has_value());
    Forward(*cache_, sequence, {drafted.begin(), drafted.begin() + 2});
    Forward(*cache_, sequence, {drafted.begin() + 2, drafted.end()});
    ASSERT_TRUE(draft->Commit(keep, Replay).has_value());
    std::vector<TokenId> tokens = prompt;
    tokens.insert(tokens.end(), drafted.begin(), drafted.begin() + keep);
    EXPECT_EQ(StateOf(sequence), StateAfter(tokens)) << "keeping " << keep;
  }
}

TEST_F(RecurrentModel, CapturesStatesInsideAStepToTheSameBits) {
  const std::vector<TokenId> tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  Sequence sequence = cache_->NewSequence();
  for (const Position at : {1, 2, 6}) ASSERT_TRUE(cache_->ScheduleCapture(sequence, at).has_value());
  Forward(*cache_, sequence, tokens);
  const std::vector<Snapshot> captures = cache_->TakeCaptures(sequence);
  ASSERT_EQ(captures.size(), 3u);
  for (const Snapshot& capture : captures) {
    Sequence restored = cache_->NewSequence();
    ASSERT_TRUE(cache_->Restore(restored, capture).has_value());
    EXPECT_EQ(StateOf(restored), StateAfter({tokens.begin(), tokens.begin() + capture.to()}));
  }
}

// Rotary embedding of a key of kRotary floats, halves paired: (x, y) rotated by position * frequency.
constexpr ptrdiff_t kRotary = 8;

void Rotate(float* key, Position by) {
  for (ptrdiff_t i = 0; i < kRotary / 2; ++i) {
    const float angle = static_cast<float>(by) * std::pow(10000.0F, -2.0F * static_cast<float>(i) / kRotary);
    const float x = key[i];
    const float y = key[i + kRotary / 2];
    key[i] = x * std::cos(angle) - y * std::sin(angle);
    key[i + kRotary / 2] = x * std::sin(angle) + y * std::cos(angle);
  }
}

// Keys are stored rotated to their position; after a removal the callback rotates them by the difference.
TEST(RotaryModel, TurnsKeysToTheirNewPositionsAfterARemoval) {
  const Layout layout{.page_tokens = 4, .groups = {{.layers = 2, .kv_heads = 2, .head_dim = kRotary}}};
  auto cache = std::move(*HybridCache::Create(layout, {.pages = {16}}));
  Sequence sequence = cache->NewSequence();
  const auto key_of = [](Position token, int32_t layer, int32_t head, Position at, float* key) {
    std::mt19937 random(static_cast<uint32_t>(token * 100 + Position{layer} * 10 + head));
    for (ptrdiff_t i = 0; i < kRotary; ++i) key[i] = static_cast<float>(random() % 1000) / 1000.0F;
    Rotate(key, at);
  };
  // Lets `change` at the key in row `row` of a head's, of which every number lies in a plane of its own.
  const auto with_key = [&](std::byte* head, ptrdiff_t row, const auto& change) {
    auto* const planes = reinterpret_cast<float*>(head) + row;
    float key[kRotary];
    for (ptrdiff_t i = 0; i < kRotary; ++i) key[i] = planes[i * layout.page_tokens];
    change(key);
    for (ptrdiff_t i = 0; i < kRotary; ++i) planes[i * layout.page_tokens] = key[i];
  };
  const auto for_each_key = [&](const StepView& view, const auto& visit) {
    for (const PageView& page : view.Pages(0, 0)) {
      for (Position at = page.first; at < page.first + page.tokens; ++at) {
        for (int32_t layer = 0; layer < 2; ++layer) {
          for (int32_t head = 0; head < 2; ++head) {
            with_key(page.base + KeyOffset(layout, 0, layer, head), at % layout.page_tokens,
                     [&](float* key) { visit(at, layer, head, key); });
          }
        }
      }
    }
  };
  {
    const Append append[] = {{&sequence, 19}};
    auto step = std::move(*cache->Begin(append));
    for_each_key(*step, [&](Position at, int32_t layer, int32_t head, float* key) {
      key_of(at, layer, head, at, key);
    });
    step->Commit();
  }
  ASSERT_TRUE(cache
                  ->RemoveRange(sequence, 3, 8,
                                [&](const MovedKeys& moved) {
                                  for (ptrdiff_t t = 0; t < moved.tokens; ++t) {
                                    with_key(moved.head, moved.row + t, [&](float* key) {
                                      Rotate(key, moved.new_first - moved.old_first);
                                    });
                                  }
                                })
                  .has_value());
  const auto view = std::move(*cache->View(sequence));
  EXPECT_EQ(view->offset(0), 14);
  for_each_key(*view, [&](Position at, int32_t layer, int32_t head, const float* key) {
    float want[kRotary];
    key_of(at < 3 ? at : at + 5, layer, head, at, want);
    for (ptrdiff_t i = 0; i < kRotary; ++i) ASSERT_NEAR(key[i], want[i], 1e-5F) << "position " << at;
  });
}

}  // namespace
}  // namespace quire::cache
