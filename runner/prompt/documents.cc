#include "runner/prompt/documents.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/base/ascii.h"
#include "runner/jinja/value.h"
#include "runner/prompt/message_values.h"

namespace quire::runner {
namespace {

// Looks for texts behind a place of the prompt.
class ShownTexts {
 public:
  explicit ShownTexts(std::string_view prompt) : prompt_(prompt) {}

  // What of `value` is not shown: its key or `name`. Empty: nothing.
  std::string MissingOf(const jinja::Value& value, std::string_view name) {
    if (value.is_string()) return Shows(value.as_view()) ? std::string() : std::string(name);
    if (value.is_list()) {
      for (const jinja::Value& item : value.as_list().items)
        if (std::string missing = MissingOf(item, name); !missing.empty()) return missing;
    }
    if (!value.is_dict()) return {};
    for (const auto& [key, item] : value.as_dict().entries()) {
      if (key.as_view() == "doc_id") continue;  // for citations, which few templates ask for
      if (std::string missing = MissingOf(item, key.as_view()); !missing.empty()) return missing;
    }
    return {};
  }
  // A document ends: the next ones are shown behind it, so the prompt is searched once.
  void Next() { begin_ = end_; }

 private:
  bool Shows(std::string_view text) {
    const std::string_view trimmed = api::Trimmed(text);
    if (trimmed.empty()) return true;
    size_t at = prompt_.find(trimmed, begin_);
    size_t size = trimmed.size();
    if (at == std::string_view::npos) {
      const std::string json = nlohmann::ordered_json(text).dump();
      at = prompt_.find(json, begin_);
      size = json.size();
    }
    if (at == std::string_view::npos) return false;
    end_ = std::max(end_, at + size);
    return true;
  }

  std::string_view prompt_;
  size_t begin_ = 0, end_ = 0;
};

api::Result<jinja::Value> DocumentsOf(const std::string& arguments_json) {
  if (arguments_json.find("\"documents\"") == std::string::npos) return jinja::Value();
  auto variables = ArgumentValues(arguments_json);
  if (!variables) return std::unexpected(std::move(variables).error());
  for (auto& [name, value] : *variables)
    if (name == "documents") return std::move(value);
  return jinja::Value();
}

}  // namespace

bool HasDocuments(const std::string& arguments_json) {
  const auto documents = DocumentsOf(arguments_json);
  return documents && documents->is_list();
}

api::Result<void> CheckDocuments(const std::string& arguments_json, std::string_view prompt) {
  const auto documents = DocumentsOf(arguments_json);
  if (!documents) return std::unexpected(documents.error());
  if (!documents->is_list()) return {};
  ShownTexts shown(prompt);
  const auto& items = documents->as_list().items;
  for (size_t i = 0; i < items.size(); ++i, shown.Next()) {
    const std::string missing = shown.MissingOf(items[i], "text");
    if (missing.empty()) continue;
    return api::Fail(
        api::ErrorCode::kUnsupported,
        fmt::format(R"(documents[{}]: the model's chat template does not show its "{}")", i, missing),
        "documents");
  }
  return {};
}

}  // namespace quire::runner
