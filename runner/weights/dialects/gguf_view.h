// Read-only access to the metadata and tensors of a GGUF file, for the dialects. Values come from the file: a
// value of another type counts as absent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runner/weights/tensor.h"

namespace quire::runner::weights {

class GgufView {
 public:
  // Both outlive the view and do not change while it exists.
  GgufView(const nlohmann::ordered_json& metadata, const std::vector<Tensor>& tensors);

  const std::string& architecture() const { return architecture_; }
  // "ARCHITECTURE.suffix".
  std::string Key(std::string_view suffix) const;

  // Null when absent.
  const nlohmann::ordered_json* Find(const std::string& key) const;
  bool Has(const std::string& key) const { return Find(key) != nullptr; }
  std::optional<int64_t> Integer(const std::string& key) const;
  std::optional<double> Number(const std::string& key) const;
  std::string_view Text(const std::string& key) const;  // empty when absent
  // Null unless the value is an array.
  const nlohmann::ordered_json* Array(const std::string& key) const;
  size_t Count(const std::string& key) const;  // of an array; 0 when absent
  bool HasKeysOf(std::string_view prefix) const;

  // The text of a token of the vocabulary; empty where there is no such id.
  std::string_view Token(std::optional<int64_t> id) const;

  const std::vector<Tensor>& tensors() const { return tensors_; }
  const Tensor* FindTensor(std::string_view name) const;  // null when absent
  bool HasTensorsOf(std::string_view prefix) const;

 private:
  const nlohmann::ordered_json& metadata_;
  const std::vector<Tensor>& tensors_;
  std::vector<size_t> by_name_;
  std::string architecture_;
};

}  // namespace quire::runner::weights
