// Results of a reference implementation for a checkpoint: golden.json and golden.safetensors of a
// directory, or the pair of files that holds the same for quantized weights.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "runner/models/model.h"

namespace quire::runner::golden {

struct GoldenState {
  std::vector<int64_t> shape;
  std::vector<float> values;
};

// A log-probability that another engine gave a token.
struct PeerLogprob {
  models::TokenId token = 0;
  float logprob = 0;
};

// Rows of a prompt that are an image's.
struct ImageRows {
  int32_t begin = 0, end = 0;
  std::vector<float> embeddings;                  // [end - begin, hidden size]
  std::vector<std::vector<float>> behind_layers;  // of the first text layers, [end - begin, hidden size] each
};

struct PromptImages {
  std::vector<ImageRows> rows;  // ascending
  // [ids] of time, height and width where the model's positions are those of a grid, or empty.
  std::array<std::vector<int64_t>, 3> positions;
};

struct GoldenPrompt {
  std::vector<models::TokenId> ids;
  std::vector<int32_t> logit_rows;      // positions in the prompt, ascending
  std::vector<float> logits;            // [logit_rows, vocab]
  std::vector<models::TokenId> greedy;  // continuation that does not stop at EOS
  std::vector<float> last_logits;       // [vocab] after the whole continuation; empty when not recorded
  // Behind the prompt, of an engine that rounds activations to int8 as well; for quantized weights only.
  std::vector<PeerLogprob> peer;
  std::map<std::string, std::vector<float>> hidden;  // "hidden.layer3" -> [ids, hidden size]
  // The contents of the reference's caches after some of the ids: state_dump.h has the names and shapes.
  std::map<size_t, std::map<std::string, GoldenState>> states;
  PromptImages images;
};

struct GoldenFile {
  int32_t vocab = 0;
  bool normalized = false;  // logits are log-probabilities, as servers give them
  std::vector<GoldenPrompt> prompts;
};

// Every id is in [0, vocab), every shape agrees with its prompt. kNotFound and kBadModel name the file and
// the reason.
api::Result<GoldenFile> ReadGolden(const std::filesystem::path& directory);

// `json` is <family>.quant_golden.json, beside it the .safetensors; `type` is a key such as "Q8_0".
api::Result<GoldenFile> ReadQuantGolden(const std::filesystem::path& json, std::string_view type);

}  // namespace quire::runner::golden
