// Small hybrid models with random weights, made of the checkpoint in tests/data/models/llama: its embedding,
// everything else new. The flags are others than those of the published models.
#pragma once

#include "runner/models/testing/moe_models.h"

namespace quire::runner::models::test {

void MakeFalconH1(
    PatchedModelFiles& files);  // attention and state space side by side, every multiplier and bias
void MakeGraniteHybrid(PatchedModelFiles& files);  // experts, rotated attention, groups
void MakeJamba(PatchedModelFiles& files);          // Mamba-1, experts in every other layer
void MakeKimiLinear(PatchedModelFiles& files);     // delta nets by channel, latent attention, experts
void MakeMamba2(PatchedModelFiles& files);         // no attention; limits of the time steps
void MakeMiniMax(PatchedModelFiles& files);        // lightning attention, a window, scaled residuals
void MakeNemotronH(PatchedModelFiles& files);  // layers of one part, plain experts behind a latent projection
void MakeOlmoHybrid(
    PatchedModelFiles& files);              // delta nets with fewer key heads, attention without positions
void MakePlamo2(PatchedModelFiles& files);  // norms before and behind, weights of each head's norm, a window
void MakeRwkv7(PatchedModelFiles& files);   // token shifts, a state of two sides, the first layer's values
void MakeZamba2(PatchedModelFiles& files);  // two shared blocks, adapters of attention and feed-forward

inline constexpr MoeModel kHybridModels[] = {
    {"FalconH1", MakeFalconH1},     {"GraniteHybrid", MakeGraniteHybrid},
    {"Jamba", MakeJamba},           {"Mamba2", MakeMamba2},
    {"MiniMax", MakeMiniMax},       {"NemotronH", MakeNemotronH},
    {"OlmoHybrid", MakeOlmoHybrid}, {"Zamba2", MakeZamba2},
    {"KimiLinear", MakeKimiLinear}, {"Rwkv7", MakeRwkv7},
    {"Plamo2", MakePlamo2}};

}  // namespace quire::runner::models::test
