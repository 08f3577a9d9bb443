// What the declared families have in common with Llama, and the keys of a configuration that they refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/models/testing/patched_model_files.h"

namespace quire::runner::models {
namespace {

using test::Json;
using test::LastLogits;
using test::LoadPatched;
using test::LogitsBehindARemoval;
using test::PatchedModelFiles;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kLlama = "tests/data/models/llama";

std::vector<float> LlamaAs(const std::string& family, const Json& keys) {
  return LastLogits(kLlama, [&](PatchedModelFiles& files) {
    files.json["model_type"] = family;
    files.json.update(keys);
  });
}

// The rows of some matrices below one another in a new one.
void Stack(PatchedModelFiles& files, const std::vector<std::string>& of, const std::string& name) {
  std::vector<std::byte> bytes;
  int64_t rows = 0;
  for (const std::string& part : of) {
    const test::Tensor& tensor = files.Edit(part);
    bytes.insert(bytes.end(), tensor.data.begin(), tensor.data.end());
    rows += tensor.shape[0];
  }
  const int64_t columns = files.Edit(of[0]).shape[1];
  files.Add(name, files.Edit(of[0]).type, {rows, columns}, bytes);
}

TEST(Declared, FusedProjectionsAreTheirParts) {
  const auto fuse = [](PatchedModelFiles& files) {
    files.json["model_type"] = "phi3";
    for (int layer = 0; layer < 4; ++layer) {
      const std::string prefix = "model.layers." + std::to_string(layer) + ".";
      const std::string attention = prefix + "self_attn.", mlp = prefix + "mlp.";
      Stack(files, {attention + "q_proj.weight", attention + "k_proj.weight", attention + "v_proj.weight"},
            attention + "qkv_proj.weight");
      Stack(files, {mlp + "gate_proj.weight", mlp + "up_proj.weight"}, mlp + "gate_up_proj.weight");
      for (const char* part : {"q_proj", "k_proj", "v_proj"}) {
        files.Remove(attention + part + ".weight");
      }
      files.Remove(mlp + "gate_proj.weight");
      files.Remove(mlp + "up_proj.weight");
    }
  };
  EXPECT_EQ(LastLogits(kLlama, fuse), LlamaAs("llama", Json::object()));
}

TEST(Declared, PropertiesThatDoNothingChangeNoBit) {
  const std::vector<float> expected = LlamaAs("llama", Json::object());
  EXPECT_EQ(LlamaAs("smollm3", {{"no_rope_layers", {1, 1, 1, 1}}}), expected);
  EXPECT_EQ(LlamaAs("granite", {{"attention_multiplier", 0.25}}), expected);
  EXPECT_EQ(LlamaAs("mistral", Json::object()), expected);
  EXPECT_NE(LlamaAs("smollm3", {{"no_rope_layers", {1, 0, 1, 1}}}), expected);
  EXPECT_EQ(LlamaAs("smollm3", {{"no_rope_layer_interval", 2}}),
            LlamaAs("smollm3", {{"no_rope_layers", {1, 0, 1, 0}}}));
  for (const char* key :
       {"embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"}) {
    Json keys = {{"attention_multiplier", 0.25}};
    keys[key] = 0.5;
    EXPECT_NE(LlamaAs("granite", keys), expected) << key;
  }
}

// Full attention beside windows has no positions, and neither has it where layer_types leaves no window.
TEST(Declared, Exaone4HasPositionsInAllLayersOnlyWithoutAWindow) {
  const auto with = [](double theta, const Json& window) {
    return LastLogits(kLlama, [&](PatchedModelFiles& files) {
      files.json["model_type"] = "exaone4";
      files.json["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", theta}};
      files.json["sliding_window"] = window;
      files.json["layer_types"] = std::vector<std::string>(4, "full_attention");
      for (int layer = 0; layer < 4; ++layer) {
        const std::string prefix = "model.layers." + std::to_string(layer) + ".";
        files.AddF32(prefix + "self_attn.q_norm.weight", {16}, 0.9F);
        files.AddF32(prefix + "self_attn.k_norm.weight", {16}, 1.1F);
        files.AddF32(prefix + "post_feedforward_layernorm.weight", {64}, 0.8F);
      }
    });
  };
  EXPECT_NE(with(100, nullptr), with(10000, nullptr));
  EXPECT_EQ(with(100, 8), with(10000, 8));
}

TEST(Declared, LayerTypesOfSmolLm3NeedNoOtherKey) {
  const Json keys = {
      {"no_rope_layers", {1, 1, 1, 1}},
      {"use_sliding_window", false},
      {"sliding_window", 2},
      {"layer_types", {"full_attention", "sliding_attention", "full_attention", "sliding_attention"}}};
  Json window = keys;
  window.erase("no_rope_layers");
  window.erase("use_sliding_window");
  EXPECT_EQ(LlamaAs("smollm3", keys), LlamaAs("ministral", window));
}

// Llama as the text model of a multimodal Mistral.
void MakeMultimodal(PatchedModelFiles& files) {
  Json text = files.json;
  text["model_type"] = "mistral";
  files.json = {{"model_type", "mistral3"}, {"text_config", text}};
  files.MoveTo("lm_head.", "language_model.lm_head.");
  files.MoveTo("model.", "language_model.model.");
}

TEST(Declared, AMultimodalMistralNeedNotNameTheKindOfItsTextModel) {
  const auto unnamed = [](PatchedModelFiles& files) {
    MakeMultimodal(files);
    files.json["text_config"].erase("model_type");
  };
  EXPECT_EQ(LastLogits(kLlama, unnamed), LastLogits(kLlama, MakeMultimodal));
}

// transformers goes by the outer of the two, unless a head is stored.
TEST(Declared, AStoredHeadDecidesWhereAMultimodalConfigurationContradictsItself) {
  const auto with = [](bool outer, bool inner, bool head) {
    return LastLogits(kLlama, [&](PatchedModelFiles& files) {
      MakeMultimodal(files);
      files.json["tie_word_embeddings"] = outer;
      files.json["text_config"]["tie_word_embeddings"] = inner;
      if (!head) files.Remove("language_model.lm_head.weight");
    });
  };
  const std::vector<float> tied = with(true, true, false), apart = with(false, false, true);
  EXPECT_NE(tied, apart);
  for (const bool outer : {false, true}) {
    EXPECT_EQ(with(outer, !outer, false), tied) << outer;
    EXPECT_EQ(with(outer, !outer, true), apart) << outer;
  }
}

TEST(Declared, LongRopeHasTwoSetsOfAnglesAndOneOfThemPerModel) {
  const auto load = [](const std::vector<double>& longer, const std::vector<double>& shorter,
                       int64_t context) {
    auto model = LoadPatched(kLlama, [&](PatchedModelFiles& files) {
                   files.json.erase("rope_parameters");
                   files.json["rope_theta"] = 10000;
                   files.json["original_max_position_embeddings"] = 64;
                   files.json["rope_scaling"] = {
                       {"type", "longrope"}, {"long_factor", longer}, {"short_factor", shorter}};
                 }).value();
    if (context > 0) model->SetContext(context);
    return LastLogits(*model);
  };
  const std::vector<double> one(8, 1.0), two(8, 2.0);
  EXPECT_EQ(load(two, one, 0), load(two, two, 0));
  EXPECT_EQ(load(two, one, 65), load(two, two, 0));
  EXPECT_EQ(load(two, one, 64), load(one, one, 0));
  EXPECT_NE(load(two, one, 64), load(two, one, 65));
}

// YaRN's magnitude follows from mscale and mscale_all_dim, of which GGUF has the second alone.
TEST(Declared, Ministral3HasTheSameMagnitudeInBothFormats) {
  for (const double share : {0.0, 0.5, 1.0}) {
    SCOPED_TRACE(share);
    const std::vector<float> stored =
        LastLogits("tests/data/gguf/llama.f16.gguf", [&](PatchedModelFiles& files) {
          files.Remove("rope_freqs.weight");
          Json renamed = Json::object();
          for (const auto& [key, value] : files.json.items()) {
            renamed[key.starts_with("llama.") ? "mistral3." + key.substr(6) : key] = value;
          }
          files.json = renamed;
          files.json["general.architecture"] = "mistral3";
          files.json["mistral3.rope.scaling.type"] = "yarn";
          files.json["mistral3.rope.scaling.factor"] = 4.0;
          files.json["mistral3.rope.scaling.original_context_length"] = 8U;
          files.json["mistral3.rope.scaling.yarn_log_multiplier"] = share;
        });
    const std::vector<float> published = LastLogits(kLlama, [&](PatchedModelFiles& files) {
      const Json theta = files.json["rope_parameters"]["rope_theta"];
      files.json["model_type"] = "ministral3";
      files.json["rope_parameters"] = {{"rope_type", "yarn"}, {"factor", 4.0},
                                       {"rope_theta", theta}, {"original_max_position_embeddings", 8},
                                       {"mscale", 1.0},       {"mscale_all_dim", share}};
    });
    EXPECT_EQ(stored, published);
  }
}

// With one layer, keys and values depend on their own token and position alone.
TEST(Declared, InterleavedKeysAreRotatedToWhereARemovalMovesThem) {
  for (const char* family : {"ernie4_5", "smollm3"}) {
    SCOPED_TRACE(family);
    auto model = LoadPatched(kLlama, [&](PatchedModelFiles& files) {
                   files.json["model_type"] = family;
                   files.json["num_hidden_layers"] = 1;
                   if (files.json["model_type"] == "smollm3") files.json["no_rope_layers"] = {0};
                 }).value();
    const auto [removed, fresh] = LogitsBehindARemoval(*model);
    for (size_t i = 0; i < removed.size(); ++i) ASSERT_NEAR(removed[i], fresh[i], 1e-4);
  }
}

int32_t WindowOf(const std::string& family, const Json& keys, std::string_view erased) {
  auto model = LoadPatched(kLlama, [&](PatchedModelFiles& files) {
                 files.json["model_type"] = family;
                 files.json.update(keys);
                 files.json.erase(std::string(erased));
                 if (family == "qwen3") {
                   for (int layer = 0; layer < 4; ++layer) {
                     const std::string prefix = "model.layers." + std::to_string(layer) + ".self_attn.";
                     for (const char* name : {"q_norm.weight", "k_norm.weight"})
                       files.AddF32(prefix + name, {16}, 1);
                   }
                 }
               }).value();
  return model->cache_layout().groups.front().window;
}

// transformers has a default for absent keys; null is a value of its own.
TEST(Declared, AWindowOfNullIsNoneWhereAnAbsentOneIsTheFamilys) {
  const Json null = {{"sliding_window", nullptr}};
  EXPECT_EQ(WindowOf("mistral", null, "absent"), 0);
  EXPECT_EQ(WindowOf("mistral", null, "sliding_window"), 4096);
  Json qwen = {{"sliding_window", nullptr}, {"use_sliding_window", true}, {"max_window_layers", 0}};
  EXPECT_EQ(WindowOf("qwen3", qwen, "absent"), 0);
  EXPECT_EQ(WindowOf("qwen3", qwen, "sliding_window"), 4096);
}

TEST(Declared, CapsOfNullAreNoneWhereAbsentOnesAreGemma2s) {
  const auto with = [](const char* key, const Json& value, bool erased) {
    return LastLogits("tests/data/models/gemma2", [&](PatchedModelFiles& files) {
      files.json[key] = value;
      if (erased) files.json.erase(key);
    });
  };
  for (const auto& [key, usual] :
       {std::pair("final_logit_softcapping", 30.0), std::pair("attn_logit_softcapping", 50.0)}) {
    SCOPED_TRACE(key);
    EXPECT_EQ(with(key, usual, false), with(key, usual, true));
    EXPECT_NE(with(key, nullptr, false), with(key, usual, true));
    const std::vector<float> none = with(key, nullptr, false), wide = with(key, 1e6, false);
    for (size_t i = 0; i < none.size(); ++i) ASSERT_NEAR(none[i], wide[i], 2e-3);
  }
}

// No sequence is longer than the configuration's context, up to which dynamic angles are the plain ones.
TEST(Declared, DynamicAnglesArePlainOnesWithinTheContext) {
  Json plain = {{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 10000}}}}, dynamic = plain;
  dynamic["rope_parameters"]["rope_type"] = "dynamic";
  dynamic["rope_parameters"]["factor"] = 4.0;
  EXPECT_EQ(LlamaAs("llama", dynamic), LlamaAs("llama", plain));
}

TEST(Declared, HybridsHaveTwoSetsOfLongRopeAnglesToo) {
  for (const char* path : {"tests/data/models/lfm2", "tests/data/models/qwen3_5"}) {
    SCOPED_TRACE(path);
    const auto load = [&](double longer, int64_t context) {
      auto model = LoadPatched(path, [&](PatchedModelFiles& files) {
                     Json& config =
                         files.json.contains("text_config") ? files.json["text_config"] : files.json;
                     const int64_t heads = config["num_attention_heads"], hidden = config["hidden_size"];
                     const int64_t head_dim = config.value("head_dim", hidden / heads);
                     const auto factors = [&](double factor) {
                       return std::vector<double>(static_cast<size_t>(head_dim / 2), factor);
                     };
                     config.erase("rope_theta");
                     config["original_max_position_embeddings"] = 64;
                     config["rope_parameters"] = {{"rope_type", "longrope"},
                                                  {"rope_theta", 10000},
                                                  {"partial_rotary_factor", 1.0},
                                                  {"long_factor", factors(longer)},
                                                  {"short_factor", factors(1)}};
                   }).value();
      model->SetContext(context);
      return LastLogits(*model);
    };
    EXPECT_EQ(load(2, 64), load(3, 64));
    EXPECT_NE(load(2, 65), load(3, 65));
  }
}

struct RefusedKey {
  const char* model;
  const char* key;
  Json value;
};

TEST(Declared, KeysThatNobodyReadsAreRefusedByName) {
  const std::string lfm2 = "tests/data/models/lfm2", qwen3 = "tests/data/models/qwen3",
                    gemma3 = "tests/data/models/gemma3", qwen3_5 = "tests/data/models/qwen3_5";
  const std::vector<RefusedKey> refused = {
      {kLlama, "clip_qkv", 8.0},
      {kLlama, "logit_scale", 0.0625},
      {kLlama, "use_qk_norm", true},
      {kLlama, "hidden_act", "relu"},
      {kLlama, "attention_chunk_size", 8192},
      {kLlama, "quantization_config", {{"quant_method", "awq"}, {"bits", 4}}},
      {kLlama, "embedding_multiplier", 12.0},
      {kLlama, "final_logit_softcapping", 30.0},
      {kLlama, "alibi", true},
      {kLlama, "partial_rotary_factor", 0.5},
      {gemma3.c_str(), "attn_logit_softcapping", 50.0},
      {qwen3.c_str(), "num_local_experts", 8},
      {qwen3.c_str(), "dual_chunk_attention_config", {{"chunk_size", 262144}}},
      {gemma3.c_str(), "residual_multiplier", 0.5},
      {lfm2.c_str(), "use_pos_enc", false},
      {qwen3_5.c_str(), "attn_output_gate", false}};
  for (const RefusedKey& one : refused) {
    SCOPED_TRACE(one.key);
    const auto model =
        LoadPatched(one.model, [&](PatchedModelFiles& files) { files.json[one.key] = one.value; });
    ASSERT_FALSE(model);
    EXPECT_EQ(model.error().code, api::ErrorCode::kBadModel);
    EXPECT_THAT(model.error().message, AllOf(HasSubstr("the/file"), HasSubstr(one.key)));
  }
  // Inside of an object that is read.
  const auto inside = LoadPatched(
      kLlama, [](PatchedModelFiles& files) { files.json["rope_parameters"]["attention_scale"] = 2; });
  ASSERT_FALSE(inside);
  EXPECT_THAT(inside.error().message, HasSubstr("rope_parameters/attention_scale"));
}

// Tensors of a layer in a directory, keys of the whole file in a GGUF.
TEST(Declared, ApertusHasItsActivationInBothFormats) {
  const Json alpha_p = {0.2, -0.3, 0.7, 1.1}, alpha_n = {0.5, 0.6, -0.1, 0.9}, beta = {0.5, 0.4, 0.7, 0.6};
  const auto stored = [&](const Json& keys) {
    return LoadPatched("tests/data/gguf/qwen3.f32.gguf", [&](PatchedModelFiles& files) {
      for (int layer = 0; layer < 4; ++layer)
        files.Remove("blk." + std::to_string(layer) + ".ffn_gate.weight");
      Json renamed = Json::object();
      for (const auto& [key, value] : files.json.items()) {
        renamed[key.starts_with("qwen3.") ? "apertus." + key.substr(6) : key] = value;
      }
      files.json = renamed;
      files.json["general.architecture"] = "apertus";
      files.json.update(keys);
    });
  };
  const std::vector<float> published = LastLogits("tests/data/models/qwen3", [&](PatchedModelFiles& files) {
    files.json["model_type"] = "apertus";
    files.json["hidden_act"] = "xielu";
    for (const char* key : {"use_sliding_window", "max_window_layers", "layer_types"}) files.json.erase(key);
    for (size_t layer = 0; layer < 4; ++layer) {
      const std::string prefix = "model.layers." + std::to_string(layer) + ".";
      files.Remove(prefix + "mlp.gate_proj.weight");
      files.MoveTo(prefix + "input_layernorm", prefix + "attention_layernorm");
      files.MoveTo(prefix + "post_attention_layernorm", prefix + "feedforward_layernorm");
      const auto add = [&](const char* name, const Json& value) {
        files.AddF32(prefix + "mlp.act_fn." + name, {1}, value.get<float>());
      };
      add("alpha_p", alpha_p[layer]);
      add("alpha_n", alpha_n[layer]);
      add("beta", beta[layer]);
      add("eps", -1e-6);
    }
  });
  // One number is for all layers.
  const Json keys = {
      {"xielu.alpha_p", alpha_p}, {"xielu.alpha_n", alpha_n}, {"xielu.beta", beta}, {"xielu.eps", -1e-6}};
  const auto model = stored(keys);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(LastLogits(**model), published);

  const struct {
    const char* key;
    Json value;
    const char* reason;
  } refused[] = {
      {"xielu.alpha_p", {0.2, 0.3}, "xielu.alpha_p is not a list of 4 entries, one per layer"},
      {"xielu.alpha_n", {0.2, 0.3, "x", 1}, "xielu.alpha_n has an entry that is not a finite number"},
      {"xielu.beta", 1e39, "xielu.beta has an entry that is not a finite number"},
      {"xielu.eps", nullptr, "the configuration lacks xielu.eps"}};
  for (const auto& one : refused) {
    SCOPED_TRACE(one.key);
    Json other = keys;
    other[one.key] = one.value;
    const auto bad = stored(other);
    ASSERT_FALSE(bad);
    EXPECT_THAT(bad.error().message, HasSubstr(one.reason));
  }
}

// Programs have their own scaled angles for files that say nothing.
TEST(Declared, AnglesThatAreAlwaysScaledMustBeGiven) {
  for (const char* family : {"apertus", "gpt_oss", "ministral3", "cwm"}) {
    SCOPED_TRACE(family);
    const auto model = LoadPatched(kLlama, [&](PatchedModelFiles& files) {
      files.json["model_type"] = family;
      files.json.erase("rope_parameters");
      files.json["rope_theta"] = 10000;
      files.json["num_local_experts"] = files.json["num_experts_per_tok"] = 2;
    });
    ASSERT_FALSE(model);
    EXPECT_THAT(model.error().message, HasSubstr("lacks rope_parameters"));
  }
}

TEST(Declared, KeysWithoutAMeaningForLogitsAreAccepted) {
  const Json keys = {{"torch_dtype", "bfloat16"},
                     {"attention_dropout", 0.1},
                     {"_name_or_path", "x"},
                     {"initializer_range", 0.02},
                     {"use_cache", true},
                     {"logit_scale", nullptr},
                     {"quantization_config", Json()},
                     {"clip_qkv", 0},
                     {"use_qk_norm", false},
                     {"auto_map", {{"AutoConfig", "configuration_x.X"}}}};
  EXPECT_EQ(LlamaAs("llama", keys), LlamaAs("llama", Json::object()));
}

}  // namespace
}  // namespace quire::runner::models
