// A file or a folder in place of a model's name: `quire run ./model.gguf`.
#pragma once

#include <optional>
#include <string>

#include "api/base/error.h"
#include "server/cli/client.h"
#include "server/cli/create.h"

namespace quire::cli {

struct LocalModel {
  std::string
      name;  // "file/STEM:ID"; the same while the files are the same: inodes, sizes and times of change
  CreatePlan plan;
};

// Nothing: the text is no path, which begins with '.', '/' or "~/", or ends in ".gguf", ".safetensors" or
// '/'. Errors: there is nothing there, or a folder without weights.
api::Result<std::optional<LocalModel>> FindLocalModel(const std::string& text);

// The model is in the store when this returns 0; what is done for it is said on stderr.
int StoreLocalModel(Client& client, const LocalModel& model);

}  // namespace quire::cli
