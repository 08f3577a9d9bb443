// The option table: names, types and ranges of /api/generate "options", Modelfile PARAMETERs and the sampling
// fields of the other dialects. docs/api.md lists it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "api/base/request.h"

namespace quire::api {

struct ParsedOptions {
  Options options;
  std::vector<std::string> unknown;  // names in no table, for the log
};

// A JSON object of options. Errors: kInvalidArgument naming the option and what it must be.
Result<ParsedOptions> ParseOptions(std::string_view json_object);

}  // namespace quire::api
