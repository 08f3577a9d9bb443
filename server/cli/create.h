// `quire create`: a Modelfile and the files it names, sent to the daemon.
#pragma once

#include <cstdio>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/base/error.h"
#include "server/cli/client.h"

namespace quire::cli {

struct CreateOptions {
  std::string model;
  std::string modelfile;  // path; empty = "Modelfile" of this folder, "-" = standard input
  std::string quantize;   // empty = as they are
  std::string draft_quantize;
};

// A file of the request: its name there, and where it lies here.
struct LocalFile {
  std::string name;
  std::filesystem::path path;
};

// The request of a Modelfile to /api/create, without the digests of its files.
struct CreatePlan {
  std::vector<LocalFile> files, adapters, drafts;
  std::vector<std::string> warnings;  // what is not read
  bool may_link = false;  // of files into the store: their model is found by their times of change
  std::string body_json;  // object: from, template, system, parameters, messages, license, requires, ...
};

// `folder` is where relative paths begin; "~/" is `home`. FROM and DRAFT name a file or a directory if there
// is one of that name, else a model. Errors: the Modelfile's "(line N): ...", a folder without weights.
api::Result<CreatePlan> PlanCreate(std::string_view modelfile, const std::filesystem::path& folder,
                                   const std::filesystem::path& home);

// The same for `FROM path`. Errors without a line.
api::Result<CreatePlan> PlanFrom(const std::string& path, const std::filesystem::path& folder,
                                 const std::filesystem::path& home);

// Brings the files that the daemon lacks, by a link where its store is this user's, and the request; progress
// goes to stderr. The value is the exit code.
int Create(Client& client, const CreateOptions& options);
int CreateFrom(Client& client, const std::string& model, const CreatePlan& plan);

}  // namespace quire::cli
