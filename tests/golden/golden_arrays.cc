#include "tests/golden/golden_arrays.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "runner/weights/json_text.h"

namespace quire::runner::golden {

using Json = nlohmann::ordered_json;

api::Result<Json> ReadGoldenJson(const std::filesystem::path& path) {
  constexpr uint64_t kMaxBytes = 64 << 20;
  const auto text = weights::ReadText(path, kMaxBytes);
  if (!text) return std::unexpected(text.error());
  return weights::ParseJson(*text, path.string());
}

std::optional<std::vector<int32_t>> Ids(const Json& json, int64_t limit) {
  if (!json.is_array()) return std::nullopt;
  std::vector<int32_t> ids;
  for (const Json& id : json) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(limit)) return std::nullopt;
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

api::Result<Arrays> Arrays::Open(const std::filesystem::path& path) {
  auto file = weights::MappedFile::Open(path);
  if (!file) return std::unexpected(file.error());
  auto entries = weights::ParseSafetensors(file->bytes(), path.string());
  if (!entries) return std::unexpected(entries.error());
  return Arrays(std::move(*file), std::move(*entries));
}

const weights::SafetensorsEntry* Arrays::Find(const std::string& name) const {
  const auto found = std::ranges::find(entries_, name, &weights::SafetensorsEntry::name);
  return found == entries_.end() ? nullptr : &*found;
}

template <class T>
std::vector<T> Arrays::Read(const std::string& name, std::string_view type) {
  const weights::SafetensorsEntry* entry = Find(name);
  if (entry == nullptr || entry->dtype != type) {
    Fail(fmt::format("{} is missing or of another type", name));
    return {};
  }
  std::vector<T> values(entry->data.size() / sizeof(T));
  std::memcpy(values.data(), entry->data.data(), values.size() * sizeof(T));
  return values;
}

std::vector<float> Arrays::Floats(const std::string& name) { return Read<float>(name, "F32"); }

std::vector<int32_t> Arrays::Integers(const std::string& name) { return Read<int32_t>(name, "I32"); }

void Arrays::Fail(const std::string& reason) {
  if (error_) return;
  error_ = api::Error{api::ErrorCode::kBadModel, fmt::format("{}: {}", file_.path(), reason)};
}

}  // namespace quire::runner::golden
