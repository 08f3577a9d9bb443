#include "server/cli/create.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>

#include "api/base/model_name.h"
#include "api/ollama/modelfile_parse.h"
#include "server/cli/client.h"
#include "server/cli/local_store.h"
#include "server/cli/model_check.h"
#include "server/cli/progress.h"
#include "server/cli/terminal.h"
#include "server/registry/hub.h"

namespace quire::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using api::modelfile::Command;

std::unexpected<api::Error> Refuse(const Command& command, std::string_view what) {
  const std::string where = command.line > 0 ? fmt::format("(line {}): ", command.line) : std::string();
  return api::Fail(api::ErrorCode::kInvalidArgument, where + std::string(what));
}

// The files of a sentence-transformers module ("1_Pooling"), or the template for tools, named with their
// folder.
void AddModule(const fs::path& folder, std::vector<LocalFile>& files) {
  const std::string module = folder.filename();
  std::error_code failed;
  if (module == "additional_chat_templates" && fs::is_regular_file(folder / "tool_use.jinja", failed))
    files.push_back({module + "/tool_use.jinja", folder / "tool_use.jinja"});
  if (module.size() < 3 || module[0] < '0' || module[0] > '9' || module[1] != '_') return;
  std::error_code error;
  for (const char* name : {"config.json", "model.safetensors"}) {
    if (fs::is_regular_file(folder / name, error)) files.push_back({module + "/" + name, folder / name});
  }
}

// Mistral's files hold the tensors of the others again, by other names.
void DropSecondCopy(std::vector<LocalFile>& tensors) {
  const auto is_second = [](const LocalFile& file) { return file.name.starts_with("consolidated"); };
  if (!std::ranges::all_of(tensors, is_second)) std::erase_if(tensors, is_second);
}

// Whether the file looks like a vocabulary: asked before gigabytes of tensors are copied beside it.
bool IsTekken(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  return text.find("\"pattern\"") != std::string::npos && text.find("\"token_bytes\"") != std::string::npos;
}

// The files of a folder that belong to a model: one or more GGUF, or safetensors with the JSON beside them.
api::Result<std::vector<LocalFile>> FilesOf(const Command& command, const fs::path& folder,
                                            bool only_tensors = false) {
  std::vector<LocalFile> gguf, tensors, others;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.is_directory(error)) AddModule(entry.path(), others);
    if (!entry.is_regular_file(error)) continue;
    const std::string name = entry.path().filename();
    const std::string kind = entry.path().extension();
    if (kind == ".gguf" && !only_tensors) gguf.push_back({name, entry.path()});
    if (kind == ".safetensors") tensors.push_back({name, entry.path()});
    if (kind == ".json" || kind == ".jinja" || name == "tokenizer.model" || name == "merges.txt")
      others.push_back({name, entry.path()});
  }
  std::vector<LocalFile> files = std::move(gguf);
  if (files.empty() && !tensors.empty()) {
    const auto is_tokenizer = [](const LocalFile& file) {
      return file.name == "tokenizer.json" || file.name == "tokenizer.model" || file.name == "merges.txt" ||
             (file.name == "tekken.json" && IsTekken(file.path));
    };
    if (command.name == "from" && std::ranges::none_of(others, is_tokenizer)) {
      return Refuse(command, fmt::format("{}: no tokenizer.json, tokenizer.model, tekken.json or merges.txt",
                                         folder.string()));
    }
    DropSecondCopy(tensors);
    files = std::move(tensors);
    files.insert(files.end(), others.begin(), others.end());
  }
  if (files.empty())
    return Refuse(command, fmt::format("{}: no *.gguf or *.safetensors files", folder.string()));
  std::ranges::sort(files, {}, &LocalFile::name);
  return files;
}

class Planner {
 public:
  Planner(fs::path folder, fs::path home) : folder_(std::move(folder)), home_(std::move(home)) {}

  api::Result<CreatePlan> Plan(const std::vector<Command>& commands) {
    for (const Command& command : commands) {
      if (auto handled = HandleCommand(command); !handled) return std::unexpected(handled.error());
    }
    plan_.body_json = Dump(body_);
    return std::move(plan_);
  }

 private:
  api::Result<void> HandleCommand(const Command& command) {
    if (command.name == "from") return AddFiles(command, plan_.files, "from");
    if (command.name == "draft") return AddFiles(command, plan_.drafts, "");
    if (command.name == "adapter") return AddFiles(command, plan_.adapters, "");
    if (command.name == "prefix") {
      plan_.warnings.push_back(
          fmt::format("(line {}): PREFIX is not read any more; \"quire cache import {}\" takes it in",
                      command.line, command.value));
      return {};
    }
    if (command.name == "license") {
      body_["license"].push_back(command.value);
    } else if (command.name == "parameter") {
      AddParameter(command);
    } else if (command.name == "message") {
      body_["messages"].push_back({{"role", command.key}, {"content", command.value}});
    } else {
      body_[command.name] = command.value;
    }
    return {};
  }

  // `model_field`: what takes a value that is no path; empty = it must be one.
  api::Result<void> AddFiles(const Command& command, std::vector<LocalFile>& files, const char* model_field) {
    const std::string& value = command.value;
    const fs::path path = value.starts_with("~/") ? home_ / value.substr(2) : folder_ / value;
    const bool looks_like_path = value.starts_with('.') || value.starts_with('/') ||
                                 value.starts_with("~/") || value.ends_with(".gguf") ||
                                 value.ends_with(".safetensors");
    std::error_code error;
    const bool is_file = fs::is_regular_file(path, error);
    // A model in safetensors is more than one of its files.
    const bool one_of_several = is_file && command.name == "from" && path.extension() == ".safetensors";
    if (is_file && !one_of_several) {
      files.push_back({path.filename(), path});
      return {};
    }
    if (one_of_several || fs::is_directory(path, error)) {
      auto found = one_of_several ? FilesOf(command, path.parent_path(), /*only_tensors=*/true)
                                  : FilesOf(command, path);
      // A folder may have the name of a model.
      const bool other = !found && *model_field != '\0' && !looks_like_path;
      if (!found && !other) return std::unexpected(found.error());
      if (found) {
        files.insert(files.end(), found->begin(), found->end());
        return {};
      }
    }
    if (*model_field == '\0' || looks_like_path) {
      return Refuse(command, fmt::format("{}: no such file or directory", value));
    }
    body_[model_field] = value;
    return {};
  }

  // The server knows the types of options; what reads as a number or a truth value is one, but for "stop".
  void AddParameter(const Command& command) {
    if (command.key == "stop") {
      body_["parameters"]["stop"].push_back(command.value);
      return;
    }
    const Json value = Json::parse(command.value, nullptr, false);
    const bool plain = value.is_number() || value.is_boolean();
    body_["parameters"][command.key] = plain ? value : Json(command.value);
  }

  const fs::path folder_, home_;
  CreatePlan plan_;
  Json body_ = Json::object();
};

// A smaller file has arrived before anybody could read its line.
constexpr int64_t kShownBytesMin = int64_t{1} << 20;

// Brings what the daemon lacks; the value is {name: digest}.
api::Result<Json> SendFiles(Client& client, const std::vector<LocalFile>& files, bool may_link,
                            Progress& progress) {
  Json digests = Json::object();
  for (const LocalFile& file : files) {
    progress.Update("gathering model components", 0, 0);
    const auto digest = DigestOfFile(file.path);
    if (!digest) return std::unexpected(digest.error());
    digests[file.name] = *digest;
    std::error_code error;
    const auto total = static_cast<int64_t>(fs::file_size(file.path, error));
    const std::string text = "copying file " + *digest;
    const auto show = [&](int64_t bytes) {
      if (total >= kShownBytesMin) progress.Update(text, bytes, total);
    };
    const auto brought = BringFile(client, file.path, *digest, may_link, show);
    if (!brought) return std::unexpected(brought.error());
    if (*brought != Arrival::kThere && *brought != Arrival::kSent)
      progress.Update(fmt::format("{} {} into the store", PastTense(*brought), file.name), 0, 0);
  }
  return digests;
}

api::Result<std::string> ReadModelfile(const std::string& name) {
  if (name == "-") return std::string(std::istreambuf_iterator<char>(std::cin), {});
  std::ifstream file(name, std::ios::binary);
  if (!file) {
    return api::Fail(api::ErrorCode::kNotFound,
                     fmt::format("{}: no such file; specify a Modelfile with -f", name));
  }
  return std::string(std::istreambuf_iterator<char>(file), {});
}

api::Result<CreatePlan> ReadPlan(const CreateOptions& options) {
  const std::string name = options.modelfile.empty() ? "Modelfile" : options.modelfile;
  const auto text = ReadModelfile(name);
  if (!text) return std::unexpected(text.error());
  const char* home = std::getenv("HOME");
  const fs::path folder = name == "-" ? fs::current_path() : fs::absolute(name).parent_path();
  auto plan = PlanCreate(*text, folder, home != nullptr ? home : "/");
  if (!plan) return std::unexpected(plan.error());
  for (const std::string& warning : plan->warnings) fmt::print(stderr, "{}: {}\n", name, warning);
  return plan;
}

api::Result<std::string> MakeBody(Client& client, const CreatePlan& plan, const CreateOptions& options,
                                  Progress& progress) {
  Json body = Json::parse(plan.body_json);
  body["model"] = options.model;
  for (const auto& [field, files] : {std::pair{"files", &plan.files}, std::pair{"adapters", &plan.adapters},
                                     std::pair{"draft_files", &plan.drafts}}) {
    if (files->empty()) continue;
    auto digests = SendFiles(client, *files, plan.may_link, progress);
    if (!digests) return std::unexpected(digests.error());
    body[field] = *std::move(digests);
  }
  if (!options.quantize.empty()) body["quantize"] = options.quantize;
  if (!options.draft_quantize.empty()) body["draft_quantize"] = options.draft_quantize;
  return Dump(body);
}

int CreateAs(Client& client, const CreatePlan& plan, const CreateOptions& options) {
  Progress progress(stderr, Columns(stderr), Rows(stderr));
  auto body = MakeBody(client, plan, options, progress);
  if (!body) {
    progress.Finish();
    return PrintError(body.error());
  }
  return FollowProgress(client, "/api/create", *std::move(body), progress);
}

// A model of a hub that the new one begins with is pulled with the user's token.
int PullBase(Client& client, const CreatePlan& plan) {
  const std::string from = Json::parse(plan.body_json).value("from", "");
  const auto name = api::ParseModelName(from);
  return name && server::registry::IsOfHub(*name) ? PullIfMissing(client, from, /*insecure=*/false) : 0;
}

}  // namespace

api::Result<CreatePlan> PlanCreate(std::string_view modelfile, const fs::path& folder, const fs::path& home) {
  const auto commands = api::modelfile::Parse(modelfile);
  if (!commands) return std::unexpected(commands.error());
  return Planner(folder, home).Plan(*commands);
}

api::Result<CreatePlan> PlanFrom(const std::string& path, const fs::path& folder, const fs::path& home) {
  return Planner(folder, home).Plan({Command{.name = "from", .value = path, .line = 0}});
}

int CreateFrom(Client& client, const std::string& model, const CreatePlan& plan) {
  CreateOptions options;
  options.model = model;
  return CreateAs(client, plan, options);
}

int Create(Client& client, const CreateOptions& options) {
  const auto plan = ReadPlan(options);
  if (!plan) return PrintError(plan.error());
  if (const int pulled = PullBase(client, *plan); pulled != 0) return pulled;
  return CreateAs(client, *plan, options);
}

}  // namespace quire::cli
