// Models as Ollama and early versions of llama.cpp published them: bit for bit the logits, and the tokens, of
// the same model in the spelling of llama.cpp's converter. publish.py writes both files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cache/hybrid_cache.h"
#include "runner/kernels/thread_pool.h"
#include "runner/models/draft_model.h"
#include "runner/models/encoder.h"
#include "runner/models/testing/patched_model_files.h"
#include "runner/tokenizer/tokenizer.h"
#include "runner/weights/model_files.h"
#include "runner/weights/quantize_model.h"
#include "runner/weights/testing/hostile_files.h"
#include "tests/data/test_data.h"

namespace quire::runner {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;
using Files = std::shared_ptr<const weights::ModelFiles>;

constexpr const char* kTexts[] = {"Hello, world!", "  two spaces\n\nlines\t1234 don't",
                                  "é ü 日本語 🙂", ""};

struct Row {
  const char* name;
  std::vector<std::string> repairs;  // parts of the notes, of which there are no more
  bool predicts = false;             // has an MTP layer
  std::string file = {};             // that is edited, where it is in the fixtures only; "gguf/..."
};

class Published : public ::testing::TestWithParam<Row> {
 protected:
  void SetUp() override {
    std::string folder = "tests/data/gguf";
    if (!GetParam().file.empty()) {
      QUIRE_FIND_OR_SKIP(path, GetParam().file);
      folder = path.parent_path().string();
    }
    const std::string command = std::string("python3 tests/published/publish.py ") + GetParam().name + " " +
                                folder + " " + plain_path().string() + " " + published_path().string();
    ASSERT_EQ(std::system(command.c_str()), 0);
    plain_ = Open(plain_path());
    published_ = Open(published_path());
  }
  std::filesystem::path plain_path() const { return directory_.path() / "plain.gguf"; }
  std::filesystem::path published_path() const { return directory_.path() / "published.gguf"; }
  static Files Open(const std::filesystem::path& path) {
    auto files = weights::Open(path);
    EXPECT_TRUE(files) << files.error().message;
    return files.value_or(nullptr);
  }

  weights::testing::TemporaryDirectory directory_;
  Files plain_, published_;
};

// The vector that an encoder makes of a text.
std::vector<float> Embedding(const Files& files) {
  auto encoder = models::LoadEncoder(files);
  EXPECT_TRUE(encoder) << encoder.error().message;
  if (!encoder) return {};
  ThreadPool pool(1);
  models::EncoderBatch batch;
  batch.row_begin = {0, 20};
  batch.tokens.reserve(20);
  for (int32_t i = 0; i < 20; ++i) batch.tokens.push_back(5 + 13 * i);
  batch.types.resize(batch.tokens.size());
  std::vector<float> hidden(batch.tokens.size() * static_cast<size_t>((*encoder)->hidden_size()));
  (*encoder)->Forward(batch, pool, hidden);
  return (*encoder)->head().Pool(pool, hidden, (*encoder)->hidden_size());
}

std::vector<float> Logits(const Files& files) {
  if (models::IsEncoder(*files)) return Embedding(files);
  auto model = models::LoadModel(files, api::kDefaultKvType);
  EXPECT_TRUE(model) << model.error().message;
  return model ? models::test::LastLogits(**model) : std::vector<float>();
}

// The last of some tokens, as the MTP layer predicts them from the embeddings of those before.
std::vector<float> Predicted(const Files& files) {
  auto model = models::LoadModel(files, api::kDefaultKvType);
  auto mtp = model ? models::LoadMtpLayer(files, **model, api::kDefaultKvType)
                   : api::Result<std::unique_ptr<models::MtpLayer>>();
  EXPECT_TRUE(mtp) << mtp.error().message;
  if (!mtp || !*mtp) return {};
  ThreadPool pool(1);
  const std::vector<api::TokenId> tokens = {5, 300, 17, 42};
  std::vector<float> before(tokens.size() * static_cast<size_t>((*model)->hidden_size()));
  (*model)->Embed(tokens, pool, before);
  auto cache = cache::HybridCache::Create((*mtp)->cache_layout(), {.bytes = 16 << 20}).value();
  cache::Sequence sequence = cache->NewSequence();
  const cache::Append appends[] = {{.sequence = &sequence, .tokens = 4}};
  auto step = cache->Begin(appends).value();
  std::vector<float> logits(static_cast<size_t>((*model)->vocab_size()));
  (*mtp)->Forward({.tokens = tokens, .row_begin = {0, 4}, .logit_rows = {3}}, before, *step, pool, logits);
  step->Commit();
  return logits;
}

TEST_P(Published, ComputesTheSameBits) {
  const std::vector<float> expected = Logits(plain_);
  ASSERT_THAT(expected, Not(IsEmpty()));
  EXPECT_EQ(Logits(published_), expected);
  if (!GetParam().predicts) return;
  const std::vector<float> predicted = Predicted(plain_);
  ASSERT_THAT(predicted, Not(IsEmpty()));
  EXPECT_EQ(Predicted(published_), predicted);
}

TEST_P(Published, ReadsTextAsTheSameTokens) {
  const auto plain = tokenizer::Tokenizer::FromGguf(plain_->config());
  const auto published = tokenizer::Tokenizer::FromGguf(published_->config());
  ASSERT_TRUE(plain) << plain.error().message;
  ASSERT_TRUE(published) << published.error().message;
  ASSERT_EQ((*published)->vocab_size(), (*plain)->vocab_size());
  EXPECT_EQ((*published)->add_bos(), (*plain)->add_bos());
  for (api::TokenId id = 0; id < (*plain)->vocab_size(); ++id) {
    EXPECT_EQ((*published)->TokenBytes(id), (*plain)->TokenBytes(id)) << id;
  }
  for (const char* text : kTexts) {
    EXPECT_EQ((*published)->Encode(text, tokenizer::SpecialTokens::kParse).value(),
              (*plain)->Encode(text, tokenizer::SpecialTokens::kParse).value())
        << text;
  }
  const auto ends_of = [](const Files& files, const tokenizer::Tokenizer& tokenizer) {
    std::vector<int32_t> ends = files->end_of_generation_ids();
    ends.insert(ends.end(), tokenizer.ends().begin(), tokenizer.ends().end());
    return ends;
  };
  EXPECT_THAT(ends_of(published_, **published), IsSupersetOf(plain_->end_of_generation_ids()));
}

TEST_P(Published, EveryRepairIsListed) {
  EXPECT_THAT(plain_->repairs(), IsEmpty());
  EXPECT_EQ(published_->repairs().size(), GetParam().repairs.size())
      << ::testing::PrintToString(published_->repairs());
  for (const std::string& repair : GetParam().repairs) {
    EXPECT_THAT(published_->repairs(), Contains(HasSubstr(repair)));
  }
}

// Conversion keeps the file's spelling, which is then repaired as before. Tensors without elements are left
// out.
TEST_P(Published, ACopyIsTheSameModel) {
  const auto copy = directory_.path() / "copy.gguf";
  const auto done = weights::QuantizeGguf(published_path(), "", copy, 1);
  ASSERT_TRUE(done) << done.error().message;
  const Files files = Open(copy);
  const std::span<const std::string> repairs = published_->repairs();
  const auto empty = std::ranges::count_if(
      repairs, [](const std::string& repair) { return repair.find("no elements") != std::string::npos; });
  EXPECT_EQ(files->repairs().size(), repairs.size() - static_cast<size_t>(empty));
  EXPECT_EQ(Logits(files), Logits(published_));
}

INSTANTIATE_TEST_SUITE_P(
    Rows, Published,
    ::testing::Values(
        Row{"gemma3",
            {"rope.scaling.type: absent", "rope.scaling.factor: absent", "rope.freq_base: read from",
             "rope.freq_base_swa: read from", "tokens: the last 1 of 513", "add_space_prefix: absent"}},
        Row{"gemma4", {"tokenizer.ggml.model: llama", "token_type: <0x00>", "add_space_prefix: absent"}},
        Row{"gemma4_moe",
            {"tokenizer.ggml.model: llama", "per_expert_scale", "token_type: <0x00>",
             "add_space_prefix: absent"},
            false,
            "gguf/gemma4_moe.f16.gguf"},
        Row{"qwen3_5", {"head_count_kv: a number per layer", "recurrent_layers: from", "*.ssm_dt"}},
        Row{"qwen3_5_mtp",
            {"head_count_kv: a number per layer", "recurrent_layers: from", "*.ssm_dt", "tensors mtp.*",
             "nextn_predict_layers: counted", "block_count: with"},
            true},
        Row{"qwen3_next",
            {"head_count_kv: a number per layer", "recurrent_layers: from", "*.ssm_dt",
             "expert_weights_norm"}},
        Row{"qwen3_next_mtp",
            {"head_count_kv: a number per layer", "recurrent_layers: from", "*.ssm_dt", "tensors mtp.*",
             "nextn_predict_layers: counted", "block_count: with"},
            true},
        Row{"qwen3_next_early", {}}, Row{"lfm2_moe_early", {}},
        Row{"lfm2", {"output_norm.weight: read as", "feed_forward_length: not", "pre: default"}},
        Row{"lfm2_moe", {"output_norm.weight: read as", "pre: absent"}}, Row{"llama3", {"pre: absent"}},
        Row{"llama_linear", {"rope.scaling.factor: read from", "rope.scaling.type: read from"}},
        Row{"deepseek_distill", {}},
        Row{"olmo3",
            {"general.architecture: olmo3, read as olmo2", "attn_factor: 1.207"},
            false,
            "gguf/olmo2.f16.gguf"},
        Row{"phi3",
            {"rope_factors_long.weight\": has no elements", "rope_factors_short.weight\": has no elements"},
            false,
            "gguf/phi3.f16.gguf"},
        Row{"ministral3",
            {"yarn_beta_fast: read", "yarn_beta_slow: read", "yarn_log_multiplier: read",
             "temperature_scale: read"}},
        Row{"mistral_small", {"rope.scaling.type: empty"}}, Row{"qwen25vl", {}}, Row{"qwen2vl", {}},
        Row{"qwen3vl", {}},
        Row{"qwen3vlmoe",
            {"expert_weights_norm: read", "expert_feed_forward_length: absent"},
            false,
            "gguf/qwen3_moe.f16.gguf"},
        Row{"nemotron_omni",
            {"nemotron_h_omni, read as nemotron_h_moe", "*.ffn_latent_in.weight", "*.ffn_latent_out.weight",
             "moe_latent_size: absent"},
            false,
            "gguf/nemotron_h_moe.f16.gguf"},
        Row{"arctic_embed2", {"precompiled_charsmap"}, false, "gguf/xlm_roberta.f16.gguf"},
        Row{"embeddinggemma",
            {"gemma3, read as gemma-embedding", "rope.freq_base: read from", "rope.freq_base_swa: read from",
             "add_space_prefix: absent"},
            false,
            "gguf/embedding_gemma.f16.gguf"},
        Row{"deepseek3", {}, false, "gguf/deepseek_v3.f16.gguf"},
        Row{"glm4moelite",
            {"glm4moelite, read as deepseek2", "key_length_mla: 48", "value_length_mla: 32"},
            false,
            "gguf/deepseek_v3.f16.gguf"},
        Row{"gpt_oss",
            {"architecture", "*.attn_out.weight", "*.attn_out.bias", "*.attn_sinks", "*.ffn_norm.weight",
             "expert_feed_forward_length: absent", "rope.scaling.type: absent; gpt-oss", "pre: absent"},
            false,
            "gguf/gpt_oss_mxfp4.f16.gguf"}),
    [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace quire::runner
