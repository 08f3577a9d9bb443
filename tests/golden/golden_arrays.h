// The two files a golden is made of.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "api/base/error.h"
#include "runner/weights/mapped_file.h"
#include "runner/weights/safetensors.h"

namespace quire::runner::golden {

// kNotFound and kBadModel name the file.
api::Result<nlohmann::ordered_json> ReadGoldenJson(const std::filesystem::path& path);

// A list of ids in [0, limit), or nothing.
std::optional<std::vector<int32_t>> Ids(const nlohmann::ordered_json& json, int64_t limit);

// The arrays of a safetensors file, found by name. Reads fail at most once: the first reason is kept.
class Arrays {
 public:
  static api::Result<Arrays> Open(const std::filesystem::path& path);

  const weights::SafetensorsEntry* Find(const std::string& name) const;  // null when absent
  std::vector<float> Floats(const std::string& name);
  std::vector<int32_t> Integers(const std::string& name);
  const std::vector<weights::SafetensorsEntry>& entries() const { return entries_; }

  void Fail(const std::string& reason);
  const std::optional<api::Error>& error() const { return error_; }

 private:
  Arrays(weights::MappedFile file, std::vector<weights::SafetensorsEntry> entries)
      : file_(std::move(file)), entries_(std::move(entries)) {}
  template <class T>
  std::vector<T> Read(const std::string& name, std::string_view type);

  weights::MappedFile file_;
  std::vector<weights::SafetensorsEntry> entries_;
  std::optional<api::Error> error_;
};

}  // namespace quire::runner::golden
