#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "runner/weights/dialects/gguf_edits.h"

namespace quire::runner::weights {
namespace {

struct OtherName {
  std::string_view other;
  std::string_view ours;
};

constexpr OtherName kOtherNames[] = {{"gptoss", "gpt-oss"}, {"olmo3", "olmo2"}, {"glm4moelite", "deepseek2"}};

// The architecture that the file should name; empty: the one that it names.
std::string_view NameOfArchitecture(const GgufView& view) {
  for (const auto& [other, ours] : kOtherNames) {
    if (view.architecture() == other) return ours;
  }
  if (view.architecture() == "nemotron_h_omni") {
    return view.Integer(view.Key("expert_count")).value_or(0) > 0 ? "nemotron_h_moe" : "nemotron_h";
  }
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

}  // namespace quire::runner::weights
