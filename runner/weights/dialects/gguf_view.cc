#include "runner/weights/dialects/gguf_view.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

namespace quire::runner::weights {

GgufView::GgufView(const nlohmann::ordered_json& metadata, const std::vector<Tensor>& tensors)
    : metadata_(metadata), tensors_(tensors), by_name_(tensors.size()) {
  std::iota(by_name_.begin(), by_name_.end(), size_t{0});
  std::ranges::sort(by_name_, {}, [&](size_t i) -> const std::string& { return tensors_[i].name; });
  architecture_ = Text("general.architecture");
}

std::string GgufView::Key(std::string_view suffix) const { return architecture_ + "." + std::string(suffix); }

const nlohmann::ordered_json* GgufView::Find(const std::string& key) const {
  const auto found = metadata_.find(key);
  return found == metadata_.end() ? nullptr : &*found;
}

std::optional<int64_t> GgufView::Integer(const std::string& key) const {
  const auto* value = Find(key);
  if (value == nullptr || !value->is_number_integer()) return std::nullopt;
  if (value->is_number_unsigned() && value->get<uint64_t>() > uint64_t{INT64_MAX}) return std::nullopt;
  return value->get<int64_t>();
}

std::optional<double> GgufView::Number(const std::string& key) const {
  const auto* value = Find(key);
  return value != nullptr && value->is_number() ? std::optional(value->get<double>()) : std::nullopt;
}

std::string_view GgufView::Text(const std::string& key) const {
  const auto* value = Find(key);
  if (value == nullptr || !value->is_string()) return {};
  return value->get_ref<const std::string&>();
}

const nlohmann::ordered_json* GgufView::Array(const std::string& key) const {
  const auto* value = Find(key);
  return value != nullptr && value->is_array() ? value : nullptr;
}

size_t GgufView::Count(const std::string& key) const {
  const auto* value = Array(key);
  return value == nullptr ? 0 : value->size();
}

bool GgufView::HasKeysOf(std::string_view prefix) const {
  return std::ranges::any_of(metadata_.items(),
                             [&](const auto& item) { return item.key().starts_with(prefix); });
}

std::string_view GgufView::Token(std::optional<int64_t> id) const {
  const auto* tokens = Array("tokenizer.ggml.tokens");
  if (tokens == nullptr || !id || *id < 0 || static_cast<uint64_t>(*id) >= tokens->size()) return {};
  const auto& token = (*tokens)[static_cast<size_t>(*id)];
  return token.is_string() ? std::string_view(token.get_ref<const std::string&>()) : std::string_view();
}

const Tensor* GgufView::FindTensor(std::string_view name) const {
  const auto name_of = [&](size_t i) { return std::string_view(tensors_[i].name); };
  const auto found = std::ranges::lower_bound(by_name_, name, {}, name_of);
  return found != by_name_.end() && name_of(*found) == name ? &tensors_[*found] : nullptr;
}

bool GgufView::HasTensorsOf(std::string_view prefix) const {
  const auto name_of = [&](size_t i) { return std::string_view(tensors_[i].name); };
  const auto found = std::ranges::lower_bound(by_name_, prefix, {}, name_of);
  return found != by_name_.end() && name_of(*found).starts_with(prefix);
}

}  // namespace quire::runner::weights
