// Typed, bounded reads of a model's configuration. A family's reader asks for one value after the other and
// looks for an error once, at the end: after the first error every read returns a value from its allowed
// range.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "runner/weights/model_files.h"

namespace quire::runner::models {

// A value's names in the two formats: config.json (there also inside its text_config, which counts first),
// and GGUF, where "<architecture>." comes before it. "a|b": the first one present wins; null counts as
// absent. "a/b" is member b of object a. An empty name is in no file.
struct ConfigKey {
  std::string_view hugging_face;
  std::string_view gguf;
};

class ConfigReader {
 public:
  // `files` outlives the reader.
  explicit ConfigReader(const weights::ModelFiles& files);

  // An integer in [low, high]. Absent: the fallback, or an error when there is none.
  int64_t Integer(ConfigKey key, int64_t low, int64_t high, std::optional<int64_t> fallback = std::nullopt);
  int32_t Small(ConfigKey key, int64_t low, int32_t high, std::optional<int64_t> fallback = std::nullopt) {
    return static_cast<int32_t>(Integer(key, low, high, fallback));
  }
  // A finite number in (0, high].
  double Positive(ConfigKey key, double high, std::optional<double> fallback = std::nullopt);
  bool Boolean(ConfigKey key, bool fallback);
  std::string Text(ConfigKey key, std::string_view fallback);
  // One entry per layer, or nothing when absent. Of texts, and of truth values.
  std::optional<std::vector<std::string>> Texts(ConfigKey key, int32_t layers);
  std::optional<std::vector<bool>> Booleans(ConfigKey key, int32_t layers);
  // A list with one integer in [low, high] per layer, or one number for all of them.
  std::vector<int64_t> Integers(ConfigKey key, int32_t layers, int64_t low, int64_t high,
                                std::optional<int64_t> fallback = std::nullopt);
  // Null when absent.
  const nlohmann::ordered_json* Find(ConfigKey key) const;

  // The value, if it is an integer that int64 holds.
  static std::optional<int64_t> WholeNumber(const nlohmann::ordered_json& value);

  const weights::ModelFiles& files() const { return files_; }
  bool gguf() const { return files_.format() == weights::Format::kGguf; }
  // The name of a value in this file, the first of its aliases.
  std::string Name(ConfigKey key) const;

  // Records "<file>: <reason>" unless there is an error already.
  void Fail(const std::string& reason);
  const std::optional<api::Error>& error() const { return error_; }

 private:
  void FailMissing(ConfigKey key);
  const nlohmann::ordered_json* FindOne(const std::string& name) const;

  const weights::ModelFiles& files_;
  std::string prefix_;  // of GGUF keys
  std::optional<api::Error> error_;
};

}  // namespace quire::runner::models
