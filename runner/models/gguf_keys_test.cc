// Keys of GGUF files that few files have: what llama.cpp computes by them, against a checkpoint or a file
// that says the same in another way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cache/hybrid_cache.h"
#include "runner/kernels/thread_pool.h"
#include "runner/models/decoder_form.h"
#include "runner/models/testing/moe_models.h"
#include "tests/data/test_data.h"

namespace quire::runner::models {
namespace {

using test::Json;
using test::LastLogits;
using test::LoadPatched;
using test::PatchedModelFiles;
using testing::HasSubstr;

// Mistral Large 3: the queries of DeepSeek's architecture grow as those of a Mistral 4.
TEST(GgufKeys, DeepSeeksTemperatureMakesQueriesGrow) {
  const auto stored = [](const Json& keys) {
    return LastLogits(test::kGgufBase, [&](PatchedModelFiles& files) {
      test::MakeDeepSeekGguf(files, true);
      files.json.update(keys);
    });
  };
  const auto published = [](const Json& rope) {
    return LastLogits(test::kMoeBase, [&](PatchedModelFiles& files) {
      test::MakeMistral4(files);
      files.json["num_hidden_layers"] = 1;
      files.json["rms_norm_eps"] = 1e-6;
      files.json["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 10000.0}};
      files.json["rope_parameters"].update(rope);
    });
  };
  const auto grown =
      stored({{"deepseek2.attention.temperature_scale", 0.5}, {"deepseek2.attention.temperature_length", 2}});
  EXPECT_EQ(grown, published({{"llama_4_scaling_beta", 0.5}, {"original_max_position_embeddings", 2}}));
  const auto plain = stored(Json::object());
  EXPECT_NE(grown, plain);
  EXPECT_EQ(plain, published(Json::object()));
  EXPECT_EQ(plain, published({{"llama_4_scaling_beta", 0}})) << "as some Mistrals say it";
  EXPECT_EQ(plain, stored({{"deepseek2.attention.temperature_scale", 0.0}}));
  EXPECT_EQ(plain, stored({{"deepseek2.attention.temperature_scale", 0.5},
                           {"deepseek2.attention.temperature_length", 5}}))
      << "no position is behind the first context";
  const auto refused = LoadPatched(test::kGgufBase, [](PatchedModelFiles& files) {
    test::MakeDeepSeekGguf(files, true);
    files.json["deepseek2.attention.temperature_scale"] = 0.5;
  });
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("deepseek2.attention.temperature_length"));
}

// YaRN with a factor of 1 stretches nothing, and its attention factor is the magnitude alone.
TEST(GgufKeys, AnAttentionFactorCountsWhateverTheTypeIs) {
  const auto stored = [](const Json& keys) {
    return LastLogits(test::kGgufBase, [&](PatchedModelFiles& files) {
      files.Remove("rope_freqs.weight");
      files.json.update(keys);
    });
  };
  const auto published = [](const Json& rope) {
    return LastLogits(test::kMoeBase, [&](PatchedModelFiles& files) {
      files.json.erase("rope_parameters");
      files.json["rope_theta"] = 500000;
      files.json["rope_scaling"] = rope;
    });
  };
  const auto grown = published({{"type", "yarn"},
                                {"factor", 1.0},
                                {"attention_factor", 1.25},
                                {"original_max_position_embeddings", 8}});
  EXPECT_EQ(stored({{"llama.rope.scaling.attn_factor", 1.25}}), grown);
  EXPECT_EQ(stored({{"llama.rope.scaling.attn_factor", 1.25},
                    {"llama.rope.scaling.type", "linear"},
                    {"llama.rope.scaling.factor", 1.0}}),
            grown);
  EXPECT_NE(stored(Json::object()), grown);
  EXPECT_EQ(stored({{"llama.rope.scaling.attn_factor", 1.0}}), stored(Json::object()));
}

std::vector<float> LogitsBehind(Model& model, const std::vector<TokenId>& tokens) {
  ThreadPool pool(2);
  auto cache = cache::HybridCache::Create(model.cache_layout(), {.bytes = 16 << 20}).value();
  cache::Sequence sequence = cache->NewSequence();
  const auto count = static_cast<int32_t>(tokens.size());
  const cache::Append appends[] = {{.sequence = &sequence, .tokens = count}};
  auto step = cache->Begin(appends).value();
  std::vector<float> logits(static_cast<size_t>(model.vocab_size()));
  model.Forward({.tokens = tokens, .row_begin = {0, count}, .logit_rows = {count - 1}}, *step, pool, logits);
  step->Commit();
  return logits;
}

// Two attention layers that see 8 tokens and four convolutions that see 3 reach 22 tokens back.
TEST(GgufKeys, LayersOfLfm2ThatAttendSlide) {
  constexpr TokenId kBehind = 22;
  const auto text = [](TokenId first, TokenId same) {
    std::vector<TokenId> tokens;
    for (TokenId i = 0; i < 40; ++i) tokens.push_back(i < 40 - same ? first + i : 100 + i * 7);
    return tokens;
  };
  const auto load = [](const char* key, int window) {
    return LoadPatched("tests/data/gguf/lfm2.f16.gguf",
                       [&](PatchedModelFiles& files) { files.json[key] = window; })
        .value();
  };
  const auto slides = load("lfm2.attention.sliding_window", 8),
             whole = load("lfm2.attention.sliding_window", 0),
             wide = load("lfm2.attention.sliding_window", 40), plain = load("lfm2.attention.other", 8);
  ASSERT_EQ(slides->cache_layout().groups.size(), 1U);
  EXPECT_EQ(slides->cache_layout().groups[0].window, 8);
  EXPECT_EQ(LogitsBehind(*slides, text(3, kBehind + 1)), LogitsBehind(*slides, text(50, kBehind + 1)));
  EXPECT_NE(LogitsBehind(*slides, text(3, kBehind - 1)), LogitsBehind(*slides, text(50, kBehind - 1)));
  const auto expected = LogitsBehind(*plain, text(3, kBehind + 1));
  EXPECT_NE(expected, LogitsBehind(*plain, text(50, kBehind + 1)));
  EXPECT_NE(expected, LogitsBehind(*slides, text(3, kBehind + 1)));
  EXPECT_EQ(expected, LogitsBehind(*whole, text(3, kBehind + 1)));
  EXPECT_EQ(expected, LogitsBehind(*wide, text(3, kBehind + 1)));
}

TEST(GgufKeys, LayersWithAWindowRotateByTheirOwnBase) {
  PatchedModelFiles files(test::kGgufBase);
  const auto ropes = [&] {
    ConfigReader read(files);
    const RopeQuery query{.default_theta = 10000};
    DecoderForm form = ReadDecoderForm(read, {.rope = query});
    form.SetWindows({0, 8, 0, 8});
    ReadSlidingRope(read, query, &form);
    EXPECT_FALSE(read.error());
    std::vector<std::vector<float>> frequencies;
    for (const LayerForm& layer : form.layers)
      frequencies.push_back(form.ropes[static_cast<size_t>(layer.rope)].frequencies);
    return frequencies;
  };
  files.json["llama.rope.freq_base"] = 20000.0;
  const auto own = ropes();
  EXPECT_EQ(own[1], own[0]);
  files.json["llama.rope.freq_base_swa"] = 300.0;
  const auto mixed = ropes();
  files.json["llama.rope.freq_base"] = 300.0;
  const auto swapped = ropes();
  EXPECT_EQ(mixed[0], own[0]);
  EXPECT_EQ(mixed[2], own[0]);
  EXPECT_EQ(mixed[1], swapped[0]);
  EXPECT_EQ(mixed[3], swapped[0]);
  EXPECT_NE(mixed[1], own[0]);
}

TEST(GgufKeys, GptOssRotatesItsSlidingLayersByTheirOwnBase) {
  QUIRE_FIND_OR_SKIP(path, "gguf/gpt_oss_mxfp4.f16.gguf");
  const auto with = [&](bool all_slide, const Json& bases) {
    return LastLogits(path.string(), [&](PatchedModelFiles& files) {
      const auto layers = files.json["gpt-oss.block_count"].get<size_t>();
      files.json["gpt-oss.attention.sliding_window_pattern"] = std::vector<bool>(layers, all_slide);
      files.json.update(bases);
    });
  };
  const Json base = {{"gpt-oss.rope.freq_base", 700.0}}, sliding = {{"gpt-oss.rope.freq_base_swa", 700.0}};
  EXPECT_EQ(with(true, sliding), with(true, base));
  EXPECT_NE(with(true, sliding), with(true, Json::object()));
  EXPECT_EQ(with(false, sliding), with(false, Json::object()));
}

}  // namespace
}  // namespace quire::runner::models
