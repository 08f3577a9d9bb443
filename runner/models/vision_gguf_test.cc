// Vision towers in GGUF files: mmproj files beside a text model, and files with both in them. They compute
// what the same weights do in a checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "runner/images/prepared_image.h"
#include "runner/models/testing/patched_model_files.h"
#include "runner/models/testing/random_towers.h"
#include "runner/models/vision_tower.h"
#include "runner/weights/model_files.h"
#include "tests/data/test_data.h"

namespace quire::runner::models {
namespace {

namespace fs = std::filesystem;
using images::Tile;
using test::Json;
using GgufFiles = std::shared_ptr<test::PatchedModelFiles>;
using Replacements = std::vector<std::pair<std::string, std::string>>;

std::vector<float> EncodeOne(VisionTower& tower, const Tile& tile) {
  ThreadPool pool(2);
  EXPECT_TRUE(tower.Fits(tile));
  const Tile* const tiles[] = {&tile};
  auto pass = tower.Start(tiles);
  tower.Forward(*pass, pool, nullptr);
  return {pass->embeddings().begin(), pass->embeddings().end()};
}

Tile RandomTile(int32_t rows, int32_t columns, int32_t patch, int32_t side) {
  Tile tile{.rows = rows,
            .columns = columns,
            .patches = std::vector<float>(static_cast<size_t>(rows * columns * 3 * patch * patch)),
            .tokens = rows / side * (columns / side)};
  uint32_t state = 5;
  for (float& value : tile.patches) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<float>(state >> 8U) / static_cast<float>(1U << 23U) - 1;
  }
  return tile;
}

std::string Replaced(std::string name, const Replacements& replacements) {
  for (const auto& [from, to] : replacements) {
    if (const size_t at = name.find(from); at != std::string::npos) name.replace(at, from.size(), to);
  }
  return name;
}

std::vector<std::byte> BytesOf(const weights::Tensor& tensor) {
  return {tensor.data.begin(), tensor.data.end()};
}

// A kernel with the colors last, with the colors first; of `pixels` each.
std::vector<std::byte> ColorsFirst(const weights::Tensor& tensor, size_t pixels) {
  const size_t size = tensor.data.size() / static_cast<size_t>(tensor.elements());
  std::vector<std::byte> made(tensor.data.size());
  for (size_t at = 0; at < static_cast<size_t>(tensor.elements()); ++at) {
    const size_t row = at / (3 * pixels), color = at % (3 * pixels) / pixels, pixel = at % pixels;
    std::memcpy(made.data() + at * size, tensor.data.data() + (row * 3 * pixels + pixel * 3 + color) * size,
                size);
  }
  return made;
}

// One frame of a kernel [out, 3, frames, side, side].
std::vector<std::byte> FrameOf(const weights::Tensor& tensor, size_t frame) {
  const size_t size = tensor.data.size() / static_cast<size_t>(tensor.elements()),
               frames = static_cast<size_t>(tensor.shape[2]),
               plane = static_cast<size_t>(tensor.shape[3] * tensor.shape[4]) * size;
  std::vector<std::byte> made;
  for (size_t at = frame * plane; at < tensor.data.size(); at += frames * plane) {
    made.insert(made.end(), tensor.data.data() + at, tensor.data.data() + at + plane);
  }
  return made;
}

// The rows of each of two heads, its second half between its first.
std::vector<std::byte> PairsAdjacent(const weights::Tensor& tensor) {
  const auto rows = static_cast<size_t>(tensor.shape[0]), heads = size_t{2}, width = rows / heads;
  const size_t bytes = tensor.data.size() / rows;
  std::vector<std::byte> made(tensor.data.size());
  for (size_t row = 0; row < rows; ++row) {
    const size_t head = row / width, i = row % width, from = head * width + i / 2 + i % 2 * (width / 2);
    std::memcpy(made.data() + row * bytes, tensor.data.data() + from * bytes, bytes);
  }
  return made;
}

GgufFiles EmptyGguf(Json config) {
  auto files =
      std::make_shared<test::PatchedModelFiles>(test_data::Find("gguf/lfm2_k256.Q8_0.gguf").string());
  std::vector<std::string> names;
  for (const auto& tensor : files->tensors()) names.push_back(tensor.name);
  for (const auto& name : names) files->Remove(name);
  files->json = std::move(config);
  return files;
}

Json ProjectorKeys(const char* type, const Json& more) {
  Json keys = {{"general.architecture", "clip"},
               {"clip.projector_type", type},
               {"clip.has_vision_encoder", true},
               {"clip.vision.embedding_length", 32},
               {"clip.vision.feed_forward_length", 40},
               {"clip.vision.block_count", 2},
               {"clip.vision.attention.head_count", 2},
               {"clip.vision.attention.layer_norm_epsilon", 1e-6},
               {"clip.vision.patch_size", 4}};
  keys.update(more);
  return keys;
}

// With the architecture in front, as one file has them, and the text model's width.
Json BlobKeys(const std::string& architecture, const Json& projector) {
  Json keys = {{"general.architecture", architecture}, {architecture + ".embedding_length", 8}};
  for (const auto& [key, value] : projector.items()) {
    if (key.starts_with("clip.vision.")) keys[architecture + key.substr(4)] = value;
  }
  return keys;
}

class VisionInGguf : public testing::Test {
 protected:
  // A family of random_towers.h, or a folder of the fixtures. A random one is loaded once and read once.
  void Open(const char* family, const fs::path& folder = {}) {
    const auto open = [&]() -> std::shared_ptr<const weights::ModelFiles> {
      if (folder.empty()) return test::MakeRandomTower(family);
      return weights::Open(folder).value();
    };
    checkpoint_ = open();
    auto tower = LoadVisionTower(open(), nullptr);
    ASSERT_TRUE(tower) << tower.error().message;
    tower_ = *std::move(tower);
  }

  void ExpectSame(const GgufFiles& projector, const Tile& tile, float tolerance = 0) {
    auto made = LoadVisionTower(checkpoint_, projector);
    ASSERT_TRUE(made) << made.error().message;
    ExpectEqual(**made, tile, tolerance);
  }
  void ExpectSameInOneFile(const GgufFiles& files, const Tile& tile, float tolerance = 0) {
    auto made = LoadVisionTower(files, nullptr);
    ASSERT_TRUE(made) << made.error().message;
    ASSERT_NE(*made, nullptr);
    ExpectEqual(**made, tile, tolerance);
  }
  void ExpectEqual(VisionTower& made, const Tile& tile, float tolerance) {
    const std::vector<float> expected = EncodeOne(*tower_, tile), got = EncodeOne(made, tile);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], tolerance) << i;
  }

  std::shared_ptr<const weights::ModelFiles> checkpoint_;
  std::unique_ptr<VisionTower> tower_;
};

TEST_F(VisionInGguf, SmolVlm) {
  Replacements names = {{"model.vision_model.embeddings.patch_embedding", "v.patch_embd"},
                        {"model.vision_model.embeddings.position_embedding", "v.position_embd"},
                        {"model.vision_model.encoder.layers", "v.blk"},
                        {"model.vision_model.post_layernorm", "v.post_ln"},
                        {"model.connector.modality_projection.proj", "mm.model.fc"},
                        {"self_attn.q_proj", "attn_q"},
                        {"self_attn.k_proj", "attn_k"},
                        {"self_attn.v_proj", "attn_v"},
                        {"self_attn.out_proj", "attn_out"},
                        {"layer_norm1", "ln1"},
                        {"layer_norm2", "ln2"},
                        {"mlp.fc1", "ffn_up"},
                        {"mlp.fc2", "ffn_down"}};
  for (const bool swapped : {false, true}) {
    // Some files have the names of the two matrices of a layer the other way round.
    if (swapped) names.insert(names.end(), {{"ffn_up", "x"}, {"ffn_down", "ffn_up"}, {"x", "ffn_down"}});
    Open("smolvlm");
    const GgufFiles files = EmptyGguf(ProjectorKeys(
        "idefics3", {{"clip.vision.image_size", 24}, {"clip.vision.projector.scale_factor", 2}}));
    for (const auto& tensor : checkpoint_->tensors()) {
      files->Add(Replaced(tensor.name, names), tensor.type, tensor.shape, BytesOf(tensor));
    }
    ExpectSame(files, RandomTile(6, 6, 4, 2));
  }
}

Replacements PixtralNames(bool blob) {
  Replacements names = {{"vision_tower.transformer.layers", "v.blk"},
                        {"vision_tower.patch_conv", blob ? "v.patch_conv" : "v.patch_embd"},
                        {"vision_tower.ln_pre", blob ? "v.encoder_norm" : "v.pre_ln"},
                        {"attention.q_proj", "attn_q"},
                        {"attention.k_proj", "attn_k"},
                        {"attention.v_proj", "attn_v"},
                        {"attention.o_proj", blob ? "attn_output" : "attn_out"},
                        {"attention_norm", blob ? "attn_norm" : "ln1"},
                        {"feed_forward.gate_proj", "ffn_gate"},
                        {"feed_forward.up_proj", "ffn_up"},
                        {"feed_forward.down_proj", "ffn_down"},
                        {"multi_modal_projector", "mm"}};
  if (!blob) {
    for (const auto& more : Replacements{{"ffn_norm", "ln2"},
                                         {"mm.norm", "mm.input_norm"},
                                         {"mm.patch_merger.merging_layer", "mm.patch_merger"},
                                         {"mm.linear_1", "mm.1"},
                                         {"mm.linear_2", "mm.2"}}) {
      names.push_back(more);
    }
  }
  return names;
}

TEST_F(VisionInGguf, Mistral3) {
  Open("mistral3");
  const Json keys = ProjectorKeys(
      "pixtral",
      {{"clip.use_silu", true}, {"clip.vision.image_size", 64}, {"clip.vision.spatial_merge_size", 2}});
  const GgufFiles files = EmptyGguf(keys), blob = EmptyGguf(BlobKeys("mistral3", keys));
  blob->json["mistral3.spatial_merge_size"] = 2;
  blob->json["mistral3.attention.layer_norm_rms_epsilon"] = 1e-4;
  for (const auto& tensor : checkpoint_->tensors()) {
    const std::string name = Replaced(tensor.name, PixtralNames(false));
    const bool rotated = name.find("attn_q") != std::string::npos || name.find("attn_k") != std::string::npos;
    files->Add(name, tensor.type, tensor.shape, rotated ? PairsAdjacent(tensor) : BytesOf(tensor));
    blob->Add(Replaced(tensor.name, PixtralNames(true)), tensor.type, tensor.shape, BytesOf(tensor));
  }
  // The file does not say the norm's epsilon.
  ExpectSame(files, RandomTile(6, 4, 4, 2), 1e-3F);
  ExpectSameInOneFile(blob, RandomTile(6, 4, 4, 2));
}

TEST_F(VisionInGguf, Qwen25) {
  Open("qwen2_5_vl");
  const Json keys = ProjectorKeys("qwen2.5vl_merger", {{"clip.use_silu", true},
                                                       {"clip.vision.block_count", 3},
                                                       {"clip.vision.spatial_merge_size", 2},
                                                       {"clip.vision.window_size", 16},
                                                       {"clip.vision.n_wa_pattern", 2}});
  const GgufFiles files = EmptyGguf(keys), blob = EmptyGguf(BlobKeys("qwen25vl", keys));
  blob->json.erase("qwen25vl.vision.n_wa_pattern");
  blob->json.erase("qwen25vl.vision.feed_forward_length");
  blob->json["qwen25vl.vision.fullatt_block_indexes"] = {1};
  Replacements names = {{"visual.blocks", "v.blk"}, {"attn.qkv", "attn_qkv"},
                        {"attn.proj", "attn_out"},  {"norm1", "ln1"},
                        {"norm2", "ln2"},           {"mlp.gate_proj", "ffn_gate"},
                        {"mlp.up_proj", "ffn_up"},  {"mlp.down_proj", "ffn_down"}};
  Replacements blob_names = names;
  blob_names.emplace_back("visual.merger", "v.merger");
  names.insert(names.end(), {{"visual.merger.ln_q", "v.post_ln"},
                             {"visual.merger.mlp.0", "mm.0"},
                             {"visual.merger.mlp.2", "mm.2"}});
  for (const auto& tensor : checkpoint_->tensors()) {
    if (tensor.name == "visual.patch_embed.proj.weight") {
      const std::vector<int64_t> shape = {32, 3, 4, 4};
      files->Add("v.patch_embd.weight", tensor.type, shape, FrameOf(tensor, 0));
      files->Add("v.patch_embd.weight.1", tensor.type, shape, FrameOf(tensor, 1));
      blob->Add("v.patch_embd_0.weight", tensor.type, shape, FrameOf(tensor, 0));
      blob->Add("v.patch_embd_1.weight", tensor.type, shape, FrameOf(tensor, 1));
      continue;
    }
    files->Add(Replaced(tensor.name, names), tensor.type, tensor.shape, BytesOf(tensor));
    const std::string name = Replaced(tensor.name, blob_names);
    const size_t joined = name.find("attn_qkv");
    if (joined == std::string::npos) {
      blob->Add(name, tensor.type, tensor.shape, BytesOf(tensor));
      continue;
    }
    const std::vector<std::byte> all = BytesOf(tensor);
    std::vector<int64_t> shape = tensor.shape;
    shape[0] /= 3;
    const auto third = static_cast<std::ptrdiff_t>(all.size() / 3);
    for (std::ptrdiff_t i = 0; i < 3; ++i) {
      std::string part = name;
      part.replace(joined, 8, std::string("attn_") + "qkv"[i]);
      blob->Add(part, tensor.type, shape, {all.begin() + i * third, all.begin() + (i + 1) * third});
    }
  }
  ExpectSame(files, RandomTile(10, 6, 4, 2));
  ExpectSameInOneFile(blob, RandomTile(10, 6, 4, 2));
}

Replacements Gemma4Names() {
  return {{"model.vision_tower.encoder.layers", "v.blk"},
          {"model.vision_tower.patch_embedder.input_proj", "v.patch_embd"},
          {"model.vision_tower.patch_embedder.position_embedding_table", "v.position_embd.weight"},
          {"model.vision_tower.std_", "v.std_"},
          {"model.embed_vision.embedding_projection", "mm.input_projection"},
          {".linear", ""},
          {"self_attn.q_proj", "attn_q"},
          {"self_attn.k_proj", "attn_k"},
          {"self_attn.v_proj", "attn_v"},
          {"self_attn.o_proj", "attn_out"},
          {"self_attn.q_norm", "attn_q_norm"},
          {"self_attn.k_norm", "attn_k_norm"},
          {"input_layernorm", "ln1"},
          {"post_attention_layernorm", "attn_post_norm"},
          {"pre_feedforward_layernorm", "ln2"},
          {"post_feedforward_layernorm", "ffn_post_norm"},
          {"mlp.gate_proj", "ffn_gate"},
          {"mlp.up_proj", "ffn_up"},
          {"mlp.down_proj", "ffn_down"}};
}

TEST_F(VisionInGguf, Gemma4) {
  Open("gemma4");
  const Json keys = ProjectorKeys("gemma4v", {{"clip.vision.projector.scale_factor", 3}});
  const GgufFiles files = EmptyGguf(keys), blob = EmptyGguf(BlobKeys("gemma4", keys));
  for (const auto& tensor : checkpoint_->tensors()) {
    const std::string name = Replaced(tensor.name, Gemma4Names());
    const bool kernel = name == "v.patch_embd.weight";
    std::vector<int64_t> shape = kernel ? std::vector<int64_t>{32, 3, 4, 4} : tensor.shape;
    if (shape.empty()) shape = {1};
    for (const GgufFiles& to : {files, blob}) {
      to->Add(name, tensor.type, shape, kernel ? ColorsFirst(tensor, 16) : BytesOf(tensor));
    }
  }
  ExpectSame(files, RandomTile(6, 9, 4, 3));
  ExpectSameInOneFile(blob, RandomTile(6, 9, 4, 3));
}

// The tensors and keys of an mmproj file in the text model's, as Ollama's converter names them.
GgufFiles OneFile(const fs::path& folder, const std::string& name, const std::string& architecture,
                  const Replacements& names) {
  auto files = std::make_shared<test::PatchedModelFiles>((folder / (name + ".f16.gguf")).string());
  const auto projector = weights::Open(folder / ("mmproj-" + name + ".f16.gguf")).value();
  const Json original = files->json;
  const std::string text = files->architecture() + ".embedding_length";
  files->json = BlobKeys(architecture, projector->config());
  files->json[architecture + ".embedding_length"] = original[text];
  for (const auto& tensor : projector->tensors()) {
    files->Add(Replaced(tensor.name, names), tensor.type, tensor.shape, BytesOf(tensor));
  }
  return files;
}

TEST_F(VisionInGguf, Gemma3InOneFile) {
  QUIRE_FIND_OR_SKIP(found, "vision/gemma3_vl");
  Open("gemma3_vl", found);
  const GgufFiles files = OneFile(found, "gemma3_vl", "gemma3",
                                  {{"v.patch_embd", "v.patch_embedding"},
                                   {"v.position_embd", "v.position_embedding"},
                                   {"v.post_ln", "v.post_layernorm"},
                                   {"attn_out", "attn_output"},
                                   {"ln1", "layer_norm1"},
                                   {"ln2", "layer_norm2"},
                                   {"ffn_up", "mlp.fc1"},
                                   {"ffn_down", "mlp.fc2"},
                                   {"mm.input_projection", "mm.mm_input_projection"},
                                   {"mm.soft_emb_norm", "mm.mm_soft_emb_norm"}});
  files->json.erase("gemma3.vision.projector.scale_factor");
  files->json["gemma3.mm.tokens_per_image"] = 16;
  ExpectSameInOneFile(files, RandomTile(8, 8, 7, 2), 1e-3F);
}

TEST_F(VisionInGguf, Qwen3InOneFile) {
  QUIRE_FIND_OR_SKIP(found, "vision/qwen3_vl");
  Open("qwen3_vl", found);
  const GgufFiles files = OneFile(found, "qwen3_vl", "qwen3vl",
                                  {{"v.deepstack.1.fc", "v.deepstack_merger.0.linear_fc"},
                                   {"v.deepstack.2.fc", "v.deepstack_merger.1.linear_fc"},
                                   {"v.deepstack.1.", "v.deepstack_merger.0."},
                                   {"v.deepstack.2.", "v.deepstack_merger.1."},
                                   {"v.position_embd", "v.pos_embed"},
                                   {"v.patch_embd.bias", "v.patch_embed.bias"},
                                   {"v.post_ln", "v.merger.norm"},
                                   {"mm.0", "v.merger.linear_fc1"},
                                   {"mm.2", "v.merger.linear_fc2"},
                                   {"ln1", "norm1"},
                                   {"ln2", "norm2"},
                                   {"ffn_up", "mlp.linear_fc1"},
                                   {"ffn_down", "mlp.linear_fc2"}});
  for (const char* name : {"v.patch_embd.weight", "v.patch_embd.weight.1"}) files->Remove(name);
  const weights::Tensor kernel = *checkpoint_->Find("model.visual.patch_embed.proj.weight");
  files->Add("v.patch_embed.weight", kernel.type, {48 * 3, 2, 8, 8}, BytesOf(kernel));
  files->json["qwen3vl.vision.deepstack_visual_indexes"] = {1, 2};
  ExpectSameInOneFile(files, RandomTile(4, 6, 8, 2), 1e-3F);
}

TEST_F(VisionInGguf, Lfm2) {
  QUIRE_FIND_OR_SKIP(found, "vision/lfm2_vl");
  Open("lfm2_vl", found);
  const GgufFiles files = EmptyGguf(ProjectorKeys("lfm2", {{"clip.vision.embedding_length", 48},
                                                           {"clip.vision.feed_forward_length", 96},
                                                           {"clip.vision.block_count", 3},
                                                           {"clip.vision.attention.head_count", 4},
                                                           {"clip.vision.patch_size", 16},
                                                           {"clip.vision.projector.scale_factor", 2}}));
  const Replacements names = {
      {"model.vision_tower.vision_model.embeddings.patch_embedding", "v.patch_embd"},
      {"model.vision_tower.vision_model.embeddings.position_embedding", "v.position_embd"},
      {"model.vision_tower.vision_model.encoder.layers", "v.blk"},
      {"model.vision_tower.vision_model.post_layernorm", "v.post_ln"},
      {"model.multi_modal_projector.layer_norm", "mm.input_norm"},
      {"model.multi_modal_projector.linear_", "mm."},
      {"self_attn.q_proj", "attn_q"},
      {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},
      {"self_attn.out_proj", "attn_out"},
      {"layer_norm1", "ln1"},
      {"layer_norm2", "ln2"},
      {"mlp.fc1", "ffn_up"},
      {"mlp.fc2", "ffn_down"}};
  for (const auto& tensor : checkpoint_->tensors()) {
    const std::string name = Replaced(tensor.name, names);
    const bool kernel = name == "v.patch_embd.weight";
    if (!name.starts_with("v.") && !name.starts_with("mm.")) continue;
    files->Add(name, tensor.type, kernel ? std::vector<int64_t>{48, 3, 16, 16} : tensor.shape,
               kernel ? ColorsFirst(tensor, 256) : BytesOf(tensor));
  }
  ExpectSame(files, RandomTile(4, 6, 16, 2));
}

TEST_F(VisionInGguf, RefusesWhatItDoesNotKnow) {
  Open("smolvlm");
  auto made = LoadVisionTower(checkpoint_, EmptyGguf(ProjectorKeys("minicpmv", Json::object())));
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, api::ErrorCode::kUnsupported);
  EXPECT_THAT(made.error().message, testing::HasSubstr("minicpmv"));
  made = LoadVisionTower(checkpoint_, EmptyGguf(ProjectorKeys("pixtral", Json::object())));
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, api::ErrorCode::kBadModel);
  EXPECT_THAT(made.error().message, testing::HasSubstr("v.patch_embd.weight"));
  // A text model.
  made = LoadVisionTower(EmptyGguf({{"general.architecture", "llama"}}), nullptr);
  ASSERT_TRUE(made);
  EXPECT_EQ(*made, nullptr);
}

}  // namespace
}  // namespace quire::runner::models
