#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "runner/weights/dialects/gguf_edits.h"

namespace quire::runner::weights {
api::Result<GgufEdits> DetectLfm2(const GgufView& view) {
  GgufEdits edits;
  if (view.architecture() != "lfm2" && view.architecture() != "lfm2moe") return edits;
  if (view.FindTensor("output_norm.weight") != nullptr) {
    edits.tensors.push_back({.from = "output_norm.weight", .to = "token_embd_norm.weight"});
    edits.notes.emplace_back("tensor output_norm.weight: read as token_embd_norm.weight");
  }
  const std::string key = view.Key("feed_forward_length");
  const Tensor* gate = view.FindTensor("blk.0.ffn_gate.weight");
  if (gate != nullptr && gate->shape.size() == 2 && view.Integer(key) != gate->rows()) {
    edits.Set(key, gate->rows(), "not the width of blk.0.ffn_gate.weight, which holds");
  }
  return edits;
}

api::Result<GgufEdits> DetectQwenMoe(const GgufView& view) {
  GgufEdits edits;
  if (view.architecture() != "qwen3moe" && view.architecture() != "qwen3vlmoe") return edits;
  edits.Alias(view, view.Key("norm_top_k_prob"), view.Key("expert_weights_norm"));
  edits.SetExpertWidth(view);
  return edits;
}

api::Result<GgufEdits> DetectGptOss(const GgufView& view) {
  GgufEdits edits;
  if (view.architecture() != "gpt-oss") return edits;
  edits.RenameInBlocks(view, ".attn_out.weight", ".attn_output.weight");
  edits.RenameInBlocks(view, ".attn_out.bias", ".attn_output.bias");
  edits.RenameInBlocks(view, ".attn_sinks", ".attn_sinks.weight");
  edits.RenameInBlocks(view, ".ffn_norm.weight", ".post_attention_norm.weight");
  edits.SetExpertWidth(view);
  const std::string type = view.Key("rope.scaling.type");
  if (!view.Has(type)) edits.Set(type, "yarn", "absent; gpt-oss is trained with it");
  return edits;
}

}  // namespace quire::runner::weights
