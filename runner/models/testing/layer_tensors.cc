#include "runner/models/testing/layer_tensors.h"

#include <nlohmann/json.hpp>

namespace quire::runner::models::test {

void Configure(PatchedModelFiles& files, const char* model_type, int layers, const Json& keys) {
  files.json = Json{{"model_type", model_type},
                    {"vocab_size", files.json["vocab_size"]},
                    {"hidden_size", kHiddenSize},
                    {"num_hidden_layers", layers},
                    {"tie_word_embeddings", true}};
  files.json.update(keys);
}

const Json& AttentionKeys() {
  static const Json keys = {{"num_attention_heads", kQueryHeads},
                            {"num_key_value_heads", kSharedHeads},
                            {"max_position_embeddings", 512},
                            {"rms_norm_eps", 1e-5}};
  return keys;
}

}  // namespace quire::runner::models::test
