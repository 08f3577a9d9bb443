// Small models with random weights, of families that choose the keys they see; as those of moe_models.h.
#pragma once

#include "runner/models/testing/patched_model_files.h"

namespace quire::runner::models::test {

inline constexpr int kIndexBest = 9;  // tokens that a token of the first two sees

void MakeDeepSeekV32(PatchedModelFiles& files);
void MakeGlmMoeDsa(PatchedModelFiles& files);  // the second layer shares the first one's choice
void MakeMiniMaxM3(PatchedModelFiles& files);  // three blocks of six tokens

}  // namespace quire::runner::models::test
