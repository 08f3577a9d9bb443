// Model names as Ollama writes them: [host/][namespace/]model[:tag].
#pragma once

#include <string>
#include <string_view>

#include "api/base/error.h"

namespace quire::api {

struct ModelName {
  std::string host = "registry.ollama.ai";
  std::string name_space = "library";
  std::string model;
  std::string tag = "latest";

  // Shortest full form: default host and "library/" dropped, tag always shown.
  std::string Display() const;
  // Matching is case-insensitive; the stored case is kept.
  bool Matches(const ModelName& other) const;
};

// Errors: kInvalidArgument "model is required" for an empty name, else "invalid model name". A ":local"
// suffix is dropped. Part lengths and characters: docs/api.md "Names".
Result<ModelName> ParseModelName(std::string_view text);

}  // namespace quire::api
