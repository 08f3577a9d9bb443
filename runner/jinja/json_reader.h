// JSON text of a request as template values.
#pragma once

#include <cstddef>
#include <string_view>

#include "api/base/error.h"
#include "runner/jinja/text.h"
#include "runner/jinja/value.h"

namespace quire::runner::jinja {

// Reads the JSON texts of one request; their values are bounded together. Takes time linear in a text but for
// the sorting of an object's keys, and counts it as work (runner/work). One thread.
class JsonReader {
 public:
  static constexpr size_t kValuesMax = size_t{8}
                                       << 20;  // values and keys, as in a body that the daemon reads

  // Strings, keys too, carry `trust`.
  explicit JsonReader(Trust trust = Trust::kTemplate, size_t values_max = kValuesMax)
      : trust_(trust), values_left_(values_max) {}

  // Members keep their order; of equal keys the last value wins, at the first place. Numbers beyond int64
  // become floats. kInvalidArgument: not JSON, not UTF-8, or nested deeper than Limits::value_depth_max.
  // kTooLarge: too many values. The message goes on behind the name of what was read ("is not JSON"). Throws
  // WorkStopped.
  api::Result<Value> Read(std::string_view text);

 private:
  const Trust trust_;
  size_t values_left_;
};

}  // namespace quire::runner::jinja
