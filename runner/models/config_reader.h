// Typed, bounded reads of a model's configuration. A family's reader asks for one value after the other and
// looks for an error once, at the end: after the first error every read returns a value from its allowed
// range.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/error.h"
#include "runner/weights/model_files.h"

namespace quire::runner::models {

class ConfigReader {
 public:
  // Several names for one value, the first one present wins; null counts as absent. "a/b" is member b of
  // object a.
  using Keys = std::initializer_list<std::string_view>;

  // `files` outlives the reader.
  explicit ConfigReader(const weights::ModelFiles& files) : files_(files) {}

  // A whole number in [low, high]. Absent: the fallback, or an error when there is none.
  int64_t Integer(Keys keys, int64_t low, int64_t high, std::optional<int64_t> fallback = std::nullopt);
  // A finite number in (0, high].
  double Positive(Keys keys, double high, std::optional<double> fallback = std::nullopt);
  bool Boolean(Keys keys, bool fallback);
  std::string Text(Keys keys, std::string_view fallback);
  // Null when absent.
  const nlohmann::ordered_json* Find(Keys keys) const;

  // The value, if it is a whole number that int64 holds.
  static std::optional<int64_t> WholeNumber(const nlohmann::ordered_json& value);

  // Records "<file>: <reason>" unless there is an error already.
  void Fail(const std::string& reason);
  const std::optional<api::Error>& error() const { return error_; }

 private:
  void FailMissing(Keys keys);

  const weights::ModelFiles& files_;
  std::optional<api::Error> error_;
};

}  // namespace quire::runner::models
