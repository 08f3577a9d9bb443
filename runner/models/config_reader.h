// Typed, bounded reads of a model's configuration. A family's reader asks for one value after the other and
// looks for an error once, at the end: after the first error every read returns a value from its allowed
// range.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
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
  // One entry per layer, or nothing when absent. Of texts, and of truth values (in GGUF also 0 and 1).
  std::optional<std::vector<std::string>> Texts(ConfigKey key, int32_t layers);
  std::optional<std::vector<bool>> Booleans(ConfigKey key, int32_t layers);
  // Likewise of layers of two kinds: true where the text is `yes`, false where it is `no`. Another text is an
  // error.
  std::optional<std::vector<bool>> Kinds(ConfigKey key, int32_t layers, std::string_view yes,
                                         std::string_view no);
  // A list with one integer in [low, high] per layer, or one number for all of them.
  std::vector<int64_t> Integers(ConfigKey key, int32_t layers, int64_t low, int64_t high,
                                std::optional<int64_t> fallback = std::nullopt);
  // A list of `count` finite numbers in (0, high].
  std::vector<double> Numbers(ConfigKey key, size_t count, double high, bool or_zero = false);
  // Null when absent.
  const nlohmann::ordered_json* Find(ConfigKey key) const;
  // Whether config.json has the key, and whether its value is null, which for some keys is another statement
  // than leaving them out. Not as a read of the key.
  bool Says(std::string_view name) const { return FindOrNull(name) != nullptr && !SaysNull(name); }
  bool SaysNull(std::string_view name) const;
  // The member of config.json, null or not; a null pointer where it lacks it or the file is a GGUF file. Not
  // as a read of the key.
  const nlohmann::ordered_json* FindOrNull(std::string_view name) const;

  // The value, if it is an integer that int64 holds.
  static std::optional<int64_t> WholeNumber(const nlohmann::ordered_json& value);

  const weights::ModelFiles& files() const { return files_; }
  bool gguf() const { return files_.format() == weights::Format::kGguf; }
  // The name of a value in this file, the first of its aliases.
  std::string Name(ConfigKey key) const;

  // An error if config.json has the key with another value than the only one that is implemented.
  void Require(std::string_view name, std::variant<bool, double, std::string_view> value);
  // Keys without a meaning for this configuration, whatever their value.
  void Ignore(std::initializer_list<std::string_view> names) {
    names_asked_.insert(names.begin(), names.end());
  }
  // After all reads: an error if config.json has a key that no reader looks up and that may have a meaning
  // for the computation (config_keys.cc).
  void RefuseUnreadKeys();

  // Records "<file>: <reason>" unless there is an error already.
  void Fail(const std::string& reason);
  const std::optional<api::Error>& error() const { return error_; }

 private:
  void FailMissing(ConfigKey key);
  const nlohmann::ordered_json* FindOne(const std::string& name) const;

  // Whether `key`, in the object at `path`, was asked for, needs no reading, or has members of which that
  // holds.
  bool IsAccountedFor(const std::string& path, std::string_view key, const nlohmann::ordered_json& value);

  const weights::ModelFiles& files_;
  std::string prefix_;                         // of GGUF keys
  mutable std::set<std::string> names_asked_;  // paths as in ConfigKey
  std::optional<api::Error> error_;
};

}  // namespace quire::runner::models
