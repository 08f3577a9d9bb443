#include "runner/weights/dialects/gguf_edits.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace quire::runner::weights {

void GgufEdits::Set(const std::string& key, Value value, std::string_view reason) {
  keys.push_back({key, std::move(value)});
  notes.push_back(fmt::format("{}: {}", key, reason));
}

void GgufEdits::Alias(const GgufView& view, const std::string& from, const std::string& to) {
  if (view.Has(to)) return;
  const std::string reason = "read from " + from;
  if (const auto* value = view.Find(from); value != nullptr && value->is_boolean()) {
    Set(to, value->get<bool>(), reason);
  } else if (const auto integer = view.Integer(from)) {
    Set(to, *integer, reason);
  } else if (const auto number = view.Number(from)) {
    Set(to, *number, reason);
  } else if (const std::string_view text = view.Text(from); !text.empty()) {
    Set(to, std::string(text), reason);
  }
}

void GgufEdits::RenameInBlocks(const GgufView& view, std::string_view from, std::string_view to) {
  const size_t before = tensors.size();
  for (const Tensor& tensor : view.tensors()) {
    if (!tensor.name.starts_with("blk.") || !tensor.name.ends_with(from)) continue;
    const std::string block = tensor.name.substr(0, tensor.name.size() - from.size());
    tensors.push_back({.from = tensor.name, .to = block + std::string(to)});
  }
  if (tensors.size() > before) notes.push_back(fmt::format("tensors *{}: read as *{}", from, to));
}

void GgufEdits::SetExpertWidth(const GgufView& view) {
  const std::string width = view.Key("expert_feed_forward_length");
  const Tensor* gate = view.FindTensor("blk.0.ffn_gate_exps.weight");
  if (view.Has(width) || gate == nullptr || gate->shape.size() != 3) return;
  Set(width, gate->shape[1], "absent; the width of blk.0.ffn_gate_exps.weight");
}

std::unexpected<api::Error> Contradiction(std::string_view key, std::string_view reason) {
  return api::Fail(api::ErrorCode::kBadModel, fmt::format("{}: {}", key, reason));
}

}  // namespace quire::runner::weights
