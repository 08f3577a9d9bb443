// A text's hidden states do not depend on what else is in its batch, nor on the threads.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runner/models/encoder.h"

namespace quire::runner::models::test {

// Texts of 1 to 60 tokens, in no order.
inline EncoderBatch MixedBatch(int32_t texts, int32_t vocab) {
  EncoderBatch batch;
  batch.row_begin.push_back(0);
  uint32_t state = 1;
  for (int32_t text = 0; text < texts; ++text) {
    for (int32_t i = 0; i <= (text * 37 + text / 7) % 60; ++i) {
      state = state * 1664525U + 1013904223U;
      batch.tokens.push_back(static_cast<int32_t>((state >> 16U) % static_cast<uint32_t>(vocab)));
      batch.types.push_back(i % 7 == 6 ? 1 : 0);
    }
    batch.row_begin.push_back(static_cast<int32_t>(batch.tokens.size()));
  }
  return batch;
}

inline std::vector<float> StatesOf(Encoder& encoder, const EncoderBatch& batch, int threads) {
  ThreadPool pool(threads);
  std::vector<float> hidden(batch.tokens.size() * static_cast<size_t>(encoder.hidden_size()));
  encoder.Forward(batch, pool, hidden);
  return hidden;
}

// 256 texts together with 2 threads, together with 1, and each alone with 1.
inline void ExpectSameBitsInAnyBatch(std::shared_ptr<const weights::ModelFiles> files) {
  auto encoder = LoadEncoder(std::move(files));
  ASSERT_TRUE(encoder) << encoder.error().message;
  const EncoderBatch batch = MixedBatch(256, (*encoder)->vocab_size());
  const std::vector<float> together = StatesOf(**encoder, batch, 2);
  ASSERT_TRUE(std::ranges::equal(together, StatesOf(**encoder, batch, 1))) << "1 thread and 2";
  const auto width = static_cast<size_t>((*encoder)->hidden_size());
  for (size_t text = 0; text + 1 < batch.row_begin.size(); ++text) {
    const auto begin = batch.row_begin[text], end = batch.row_begin[text + 1];
    const EncoderBatch one{.tokens = {batch.tokens.begin() + begin, batch.tokens.begin() + end},
                           .types = {batch.types.begin() + begin, batch.types.begin() + end},
                           .row_begin = {0, end - begin}};
    const std::vector<float> alone = StatesOf(**encoder, one, 1);
    ASSERT_TRUE(std::ranges::equal(
        alone, std::span(together).subspan(static_cast<size_t>(begin) * width, alone.size())))
        << "text " << text << " of " << end - begin << " tokens";
  }
}

}  // namespace quire::runner::models::test
