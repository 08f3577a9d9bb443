#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "runner/weights/dialects/gguf_edits.h"

namespace quire::runner::weights {
namespace {

// The architecture that the file should name; empty: the one that it names.
std::string_view NameOfArchitecture(const GgufView& view) {
  if (view.architecture() == "gptoss") return "gpt-oss";
  const bool embeds = view.architecture() == "gemma3" && view.FindTensor("dense.0.weight") != nullptr;
  return embeds ? "gemma-embedding" : "";
}

}  // namespace

api::Result<GgufEdits> DetectArchitectureName(const GgufView& view) {
  GgufEdits edits;
  const std::string name(NameOfArchitecture(view));
  if (name.empty()) return edits;
  if (view.HasKeysOf(name + ".")) {
    return Contradiction("general.architecture",
                         fmt::format("is {}, but there are keys of {}", view.architecture(), name));
  }
  edits.architecture = name;
  edits.notes.push_back(fmt::format("general.architecture: {}, read as {}", view.architecture(), name));
  if (name == "gemma-embedding") {
    for (const auto& [from, to] : {std::pair<const char*, const char*>{"dense.0.weight", "dense_2.weight"},
                                   {"dense.1.weight", "dense_3.weight"},
                                   {"norm.weight", "output_norm.weight"}}) {
      if (view.FindTensor(from) != nullptr) edits.tensors.push_back({.from = from, .to = to});
    }
  }
  return edits;
}

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
  if (view.architecture() != "qwen3moe") return edits;
  edits.Alias(view, view.Key("norm_top_k_prob"), view.Key("expert_weights_norm"));
  return edits;
}

api::Result<GgufEdits> DetectGptOss(const GgufView& view) {
  GgufEdits edits;
  if (view.architecture() != "gpt-oss") return edits;
  const auto rename = [&](std::string_view other, std::string_view ours) {
    const size_t before = edits.tensors.size();
    for (const Tensor& tensor : view.tensors()) {
      if (!tensor.name.starts_with("blk.") || !tensor.name.ends_with(other)) continue;
      const std::string block = tensor.name.substr(0, tensor.name.size() - other.size());
      edits.tensors.push_back({.from = tensor.name, .to = block + std::string(ours)});
    }
    if (edits.tensors.size() > before)
      edits.notes.push_back(fmt::format("tensors *{}: read as *{}", other, ours));
  };
  rename(".attn_out.weight", ".attn_output.weight");
  rename(".attn_out.bias", ".attn_output.bias");
  rename(".attn_sinks", ".attn_sinks.weight");
  rename(".ffn_norm.weight", ".post_attention_norm.weight");
  const std::string width = view.Key("expert_feed_forward_length");
  const Tensor* gate = view.FindTensor("blk.0.ffn_gate_exps.weight");
  if (!view.Has(width) && gate != nullptr && gate->shape.size() == 3) {
    edits.Set(width, gate->shape[1], "absent; the width of blk.0.ffn_gate_exps.weight");
  }
  const std::string type = view.Key("rope.scaling.type");
  if (!view.Has(type)) edits.Set(type, "yarn", "absent; gpt-oss is trained with it");
  return edits;
}

}  // namespace quire::runner::weights
