// Small models with random weights, of families with experts or latent attention, made of the checkpoint in
// tests/data/models/llama: its embedding, norms and head, everything else new.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runner/models/testing/patched_model_files.h"
#include "runner/models/testing/sparse_models.h"

namespace quire::runner::models::test {

constexpr const char* kMoeBase = "tests/data/models/llama";
constexpr const char* kGgufBase = "tests/data/gguf/llama.f16.gguf";
constexpr int kMoeLayers = 3;  // the first one dense where a family has dense layers

// Replaces or adds an F32 tensor of small random numbers, the same for a name in every run.
void PutRandom(PatchedModelFiles& files, const std::string& name, const std::vector<int64_t>& shape);

void MakeDeepSeek(PatchedModelFiles& files);       // latent attention, groups of experts
void MakeDeepSeekPlain(PatchedModelFiles& files);  // without compressed queries
// For kGgufBase: the first layer of MakeDeepSeek, the matrices of keys and values `apart` or as one.
void MakeDeepSeekGguf(PatchedModelFiles& files, bool apart);
void MakeMistral4(PatchedModelFiles& files);  // latent attention, softmax scores, queries that grow
void MakeQwen3Moe(PatchedModelFiles& files);
void MakeGlm4Moe(PatchedModelFiles& files);
void MakeGptOss(PatchedModelFiles& files);
void MakeMixtral(PatchedModelFiles& files);
void MakeLlama4(PatchedModelFiles& files);    // chunks, layers without positions, experts stored transposed
void MakeQwen2Moe(PatchedModelFiles& files);  // a shared expert with a gate
void MakeErnie45Moe(
    PatchedModelFiles& files);  // experts in some layers, a bias of the choice stored as a row
void MakeHunyuanMoe(PatchedModelFiles& files);  // norms behind the rotation
void MakePhiMoe(PatchedModelFiles& files);      // layer norms, a sparse mixer, a bias of the head
void MakeMiniMaxM2(PatchedModelFiles& files);   // norms of rows

struct MoeModel {
  const char* name;
  void (*make)(PatchedModelFiles& files);
};
inline constexpr MoeModel kMoeModels[] = {
    {"DeepSeek", MakeDeepSeek},     {"DeepSeekPlain", MakeDeepSeekPlain},
    {"Mistral4", MakeMistral4},     {"Qwen3Moe", MakeQwen3Moe},
    {"Glm4Moe", MakeGlm4Moe},       {"GptOss", MakeGptOss},
    {"Mixtral", MakeMixtral},       {"Llama4", MakeLlama4},
    {"Qwen2Moe", MakeQwen2Moe},     {"Ernie45Moe", MakeErnie45Moe},
    {"HunyuanMoe", MakeHunyuanMoe}, {"PhiMoe", MakePhiMoe},
    {"MiniMaxM2", MakeMiniMaxM2},   {"DeepSeekV32", MakeDeepSeekV32},
    {"GlmMoeDsa", MakeGlmMoeDsa},   {"MiniMaxM3", MakeMiniMaxM3}};

}  // namespace quire::runner::models::test
