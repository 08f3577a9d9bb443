// A pass is bit-identical, however it is cut into slices and whatever is computed in between.
#include "runner/models/encoder_pass.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runner/models/encoder.h"
#include "runner/models/testing/random_encoders.h"
#include "runner/weights/quantize_on_load.h"

namespace quire::runner::models {
namespace {

constexpr int32_t kPassContext = 700;

EncoderBatch PassBatchOf(const std::vector<size_t>& lengths) {
  EncoderBatch batch;
  batch.row_begin.push_back(0);
  for (const size_t length : lengths) {
    const std::vector<TokenId> tokens = test::RandomTokens(length, static_cast<uint32_t>(7 * length));
    batch.tokens.insert(batch.tokens.end(), tokens.begin(), tokens.end());
    batch.row_begin.push_back(static_cast<int32_t>(batch.tokens.size()));
  }
  batch.types.resize(batch.tokens.size());
  return batch;
}

std::vector<float> WholePass(Encoder& encoder, const EncoderBatch& batch) {
  ThreadPool pool(1);
  std::vector<float> hidden(batch.tokens.size() * static_cast<size_t>(encoder.hidden_size()));
  encoder.Forward(batch, pool, hidden);
  return hidden;
}

bool PassEquals(EncoderPass& pass, const std::vector<float>& whole) {
  return std::ranges::equal(pass.hidden(), whole);
}

class EncoderPasses : public testing::TestWithParam<const char*> {
 protected:
  // As floats, and with Q8_0 weights.
  static std::vector<std::unique_ptr<Encoder>> Make() {
    const auto files = std::string(GetParam()) == "Bert" ? test::MakeLongBert(kPassContext)
                                                         : test::MakeLongModernBert(kPassContext);
    const auto quantized = weights::QuantizeOnLoad(files, "q8_0", 2);
    std::vector<std::unique_ptr<Encoder>> made;
    if (!quantized) return made;
    for (const auto& one : {std::shared_ptr<const weights::ModelFiles>(files), *quantized}) {
      auto encoder = LoadEncoder(one);
      EXPECT_TRUE(encoder) << encoder.error().message;
      if (encoder) made.push_back(*std::move(encoder));
    }
    return made;
  }
};

TEST_P(EncoderPasses, AreBitIdenticalInSlicesOfAnySize) {
  const auto encoders = Make();
  ASSERT_EQ(encoders.size(), 2U);
  const EncoderBatch batch = PassBatchOf({700, 1, 130, 64, 5});
  for (const auto& encoder : encoders) {
    const std::vector<float> whole = WholePass(*encoder, batch);
    for (const int64_t rows : {1, 64, 100, 512, 10'000}) {
      ThreadPool pool(2);
      EncoderPass pass = encoder->Start(batch);
      size_t slices = 0;
      while (!pass.done()) {
        ++slices;
        const int64_t computed = encoder->Advance(pass, pool, rows);
        EXPECT_LE(computed, std::max<int64_t>(rows, 64));
      }
      EXPECT_TRUE(PassEquals(pass, whole)) << rows << " rows";
      const auto layers = static_cast<size_t>(pass.layers_done());
      if (rows == 10'000) {
        EXPECT_EQ(slices, 2 + 2 * layers);
      } else if (rows == 64) {
        EXPECT_GT(slices, 2 * 14 * layers);
      }
    }
  }
}

TEST_P(EncoderPasses, AreBitIdenticalWithOthersBetweenTheirSlices) {
  const auto encoders = Make();
  ASSERT_EQ(encoders.size(), 2U);
  for (const auto& encoder : encoders) {
    ThreadPool pool(2);
    const EncoderBatch batch = PassBatchOf({650});
    const std::vector<float> expected = WholePass(*encoder, batch);
    EncoderPass pass = encoder->Start(batch), spare;
    for (size_t others = 1; !pass.done(); ++others) {
      encoder->Advance(pass, pool, 64);
      const EncoderBatch short_batch = PassBatchOf({others % 90 + 1, 3});
      EncoderPass other = encoder->Start(short_batch, std::exchange(spare, {}));
      while (!other.done()) encoder->Advance(other, pool, 100);
      if (others % 7 == 0) {
        EXPECT_TRUE(PassEquals(other, WholePass(*encoder, short_batch))) << others;
      }
      spare = std::move(other);
    }
    EXPECT_TRUE(PassEquals(pass, expected));
  }
}

TEST_P(EncoderPasses, TakeTheMemoryThatIsPredicted) {
  const auto encoders = Make();
  ASSERT_EQ(encoders.size(), 2U);
  // Two families, neither with a key and value head less than queries: states, queries, keys and values, and
  // angles.
  const int64_t floats = 4 * 64 + (std::string(GetParam()) == "Bert" ? 0 : 2 * 16);
  for (const auto& encoder : encoders) {
    EXPECT_EQ(encoder->pass_bytes(1000), 1000 * (4 * floats + 16));
    EXPECT_GT(encoder->scratch_bytes(512), 512 * 4 * (3 * 64 + 2 * 96));
  }
}

INSTANTIATE_TEST_SUITE_P(All, EncoderPasses, testing::Values("Bert", "ModernBert"),
                         [](const auto& one) { return std::string(one.param); });

}  // namespace
}  // namespace quire::runner::models
