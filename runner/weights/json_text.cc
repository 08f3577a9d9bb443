#include "runner/weights/json_text.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "api/base/utf8.h"
#include "runner/weights/mapped_file.h"
#include "runner/weights/text.h"

namespace quire::runner::weights {
namespace {

using nlohmann::ordered_json;

constexpr size_t kDepthMax = 32;

// Builds the document by appending only: ordered_json's own parser looks every key up one after the other,
// which makes an object of a million keys a day's work.
class TreeBuilder : public nlohmann::json_sax<ordered_json> {
 public:
  ordered_json root;
  std::string reason;

  bool start_object(size_t) override { return Open(ordered_json::object()); }
  bool end_object() override { return Close(); }
  bool start_array(size_t) override { return Open(ordered_json::array()); }
  bool end_array() override { return Close(); }

  bool key(std::string& text) override {
    Level& level = levels_.back();
    if (!level.keys.insert(text).second) {
      reason = fmt::format("key {} occurs twice in an object", Quoted(text));
      return false;
    }
    level.key = std::move(text);
    return true;
  }

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(int64_t value) override { return Add(value); }
  bool number_unsigned(uint64_t value) override { return Add(value); }
  bool number_float(double value, const std::string&) override { return Add(value); }
  bool string(std::string& value) override { return Add(std::move(value)); }
  bool binary(ordered_json::binary_t&) override { return false; }
  bool parse_error(size_t position, const std::string&, const ordered_json::exception&) override {
    reason = fmt::format("not valid JSON at byte {}", position);
    return false;
  }

 private:
  struct Level {
    ordered_json value;
    std::string key = {};  // of the member being read, in an object
    std::set<std::string> keys = {};
  };

  bool Open(ordered_json value) {
    if (levels_.size() == kDepthMax) {
      reason = fmt::format("nested deeper than {} levels", kDepthMax);
      return false;
    }
    levels_.push_back({.value = std::move(value)});
    return true;
  }

  bool Close() {
    ordered_json value = std::move(levels_.back().value);
    levels_.pop_back();
    return Add(std::move(value));
  }

  bool Add(ordered_json value) {
    if (levels_.empty()) {
      root = std::move(value);
      return true;
    }
    Level& level = levels_.back();
    if (level.value.is_array()) {
      level.value.push_back(std::move(value));
    } else {
      level.value.get_ref<ordered_json::object_t&>().emplace_back(std::move(level.key), std::move(value));
    }
    return true;
  }

  std::vector<Level> levels_;
};

api::Result<std::string> TextOf(const api::Result<MappedFile>& file) {
  if (!file) return std::unexpected(file.error());
  const auto bytes = file->bytes();
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!api::IsValidUtf8(text)) {
    return api::Fail(api::ErrorCode::kBadModel, fmt::format("{}: not valid UTF-8", file->path()));
  }
  if (const auto stand_in = StandIn(text); !stand_in.empty() && !text.empty()) {
    return api::Fail(api::ErrorCode::kBadModel, fmt::format("{}: {}", file->path(), stand_in));
  }
  return text;
}

}  // namespace

api::Result<std::string> ReadText(const std::filesystem::path& path, uint64_t bytes_max) {
  return TextOf(MappedFile::Open(path, bytes_max));
}

api::Result<std::string> ReadText(const ModelSource& source, std::string_view name, uint64_t bytes_max) {
  return TextOf(source.Open(name, bytes_max));
}

std::string WithInfinityAsObject(std::string_view text) {
  constexpr std::string_view kInfinity = "Infinity", kObject = R"({"__float__": "Infinity"})";
  std::string result;
  result.reserve(text.size());
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\') {
      result.append(text.substr(i++, 2));
      continue;
    }
    if (c == '"') quoted = !quoted;
    const bool signed_word = i > 0 && text[i - 1] == '-';
    if (!quoted && !signed_word && text.substr(i, kInfinity.size()) == kInfinity) {
      result += kObject;
      i += kInfinity.size() - 1;
    } else {
      result += c;
    }
  }
  return result;
}

api::Result<ordered_json> ParseJson(std::string_view text, const std::string& file) {
  TreeBuilder builder;
  if (!ordered_json::sax_parse(text.begin(), text.end(), &builder)) {
    return api::Fail(api::ErrorCode::kBadModel, fmt::format("{}: {}", file, builder.reason));
  }
  return std::move(builder.root);
}

}  // namespace quire::runner::weights
