#include "scheduler/model_descriptors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <system_error>
#include <utility>

#include "api/base/file_descriptor.h"
#include "api/base/io_thread.h"
#include "api/base/parse_integer.h"
#include "api/ipc/messages.h"

namespace quire::scheduler {
namespace {

namespace fs = std::filesystem;

// In a Hugging Face directory, beside the weights.
constexpr auto kNames = std::to_array<std::string_view>({"config.json",
                                                         "generation_config.json",
                                                         "tokenizer_config.json",
                                                         "special_tokens_map.json",
                                                         "tokenizer.json",
                                                         "tokenizer.model",
                                                         "tekken.json",
                                                         "vocab.json",
                                                         "merges.txt",
                                                         "added_tokens.json",
                                                         "processor_config.json",
                                                         "preprocessor_config.json",
                                                         "chat_template.jinja",
                                                         "chat_template.json",
                                                         "additional_chat_templates/tool_use.jinja",
                                                         "model.safetensors.index.json",
                                                         "1_Pooling/config.json",
                                                         "modules.json",
                                                         "sentence_bert_config.json",
                                                         "2_Dense/config.json",
                                                         "2_Dense/model.safetensors",
                                                         "3_Dense/config.json",
                                                         "3_Dense/model.safetensors",
                                                         "1_LogitScore/config.json",
                                                         "config_sentence_transformers.json"});
constexpr std::string_view kWeights = ".safetensors";

std::unexpected<api::Error> SystemFailure(const fs::path& file, int error) {
  const std::string reason = std::generic_category().message(error);
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return api::Fail(api::ErrorCode::kNotFound, fmt::format("{}: {}", file.string(), reason));
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return api::Fail(
          api::ErrorCode::kUnavailable,
          fmt::format("{}: {}: all files of a model are opened at once (see LimitNOFILE, ulimit -n)",
                      file.string(), reason));
    default:
      return api::Fail(api::ErrorCode::kBadModel, fmt::format("{}: {}", file.string(), reason));
  }
}

std::unexpected<api::Error> TooMany(const fs::path& model) {
  return api::Fail(api::ErrorCode::kBadModel,
                   fmt::format("{}: more than {} files", model.string(), api::ipc::kModelFilesMax));
}

api::Result<OpenFile> OpenRegular(const fs::path& file, std::string name) {
  // O_NONBLOCK: opening a FIFO must not wait for its writer.
  api::FileDescriptor fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status {};
  if (!fd.valid() || ::fstat(fd.get(), &status) != 0) return SystemFailure(file, errno);
  if (S_ISREG(status.st_mode)) {
    return OpenFile{std::move(name), std::move(fd),
                    fmt::format("{}:{}:{}:{}.{}:{}.{}", status.st_dev, status.st_ino, status.st_size,
                                status.st_mtim.tv_sec, status.st_mtim.tv_nsec, status.st_ctim.tv_sec,
                                status.st_ctim.tv_nsec)};
  }
  return api::Fail(api::ErrorCode::kBadModel, fmt::format("{}: not a regular file", file.string()));
}

// Whether there is such a file; it is then in `files`.
api::Result<bool> AddIfThere(const fs::path& folder, std::string name, std::vector<OpenFile>& files) {
  const fs::path path = folder / name;
  auto file = OpenRegular(path, std::move(name));
  if (!file && file.error().code == api::ErrorCode::kNotFound) return false;
  if (!file) return std::unexpected(std::move(file).error());
  files.push_back(*std::move(file));
  return true;
}

// How many files the name says that there are: 3 of "name-00001-of-00003.gguf"; 1 of any other name.
int SplitsOf(std::string_view name) {
  constexpr std::string_view kFirst = "-00001-of-";
  constexpr std::string_view kEnd = "-00001-of-00000.gguf";
  if (name.size() < kEnd.size() || !name.ends_with(".gguf")) return 1;
  const std::string_view end = name.substr(name.size() - kEnd.size());
  const std::string_view digits = end.substr(kFirst.size(), 5);
  const auto count = api::ParseInteger<int>(digits);
  return end.starts_with(kFirst) && count ? std::max(*count, 1) : 1;
}

// Up to the first that is missing, which the runner then names.
api::Result<void> AddSplits(const fs::path& first, std::vector<OpenFile>& files) {
  const std::string name = first.filename().string();
  const int count = SplitsOf(name);
  const std::string stem = name.substr(0, name.rfind("-00001-of-"));
  for (int number = 2; number <= count; ++number) {
    if (files.size() == api::ipc::kModelFilesMax) return TooMany(first);
    const auto added =
        AddIfThere(first.parent_path(), fmt::format("{}-{:05}-of-{:05}.gguf", stem, number, count), files);
    if (!added) return std::unexpected(added.error());
    if (!*added) break;
  }
  return {};
}

api::Result<void> AddDirectory(const fs::path& directory, std::vector<OpenFile>& files) {
  for (const std::string_view name : kNames) {
    const auto added = AddIfThere(directory, std::string(name), files);
    if (!added) return std::unexpected(added.error());
  }
  for (const std::string_view name : kNames) {
    const size_t slash = name.find('/');
    if (slash == std::string_view::npos) continue;
    // A folder without folders has them with a dot in place of the slash.
    std::string flat(name);
    flat[slash] = '.';
    const auto added = AddIfThere(directory, std::move(flat), files);
    if (!added) return std::unexpected(added.error());
    if (*added) files.back().name = name;
  }
  std::error_code error;
  for (fs::directory_iterator entry(directory, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (!name.ends_with(kWeights)) continue;
    if (files.size() == api::ipc::kModelFilesMax) return TooMany(directory);
    const auto added = AddIfThere(directory, std::move(name), files);
    if (!added) return std::unexpected(added.error());
  }
  if (error) return SystemFailure(directory, error.value());
  return {};
}

}  // namespace

api::Result<std::vector<OpenFile>> OpenModelFiles(const fs::path& model) {
  api::AssertMayBlock();
  std::vector<OpenFile> files;
  std::error_code ec;
  if (fs::is_directory(model, ec)) {
    if (auto added = AddDirectory(model, files); !added) return std::unexpected(added.error());
    return files;
  }
  auto file = OpenRegular(model, "");
  if (!file) return std::unexpected(std::move(file).error());
  files.push_back(*std::move(file));
  if (auto added = AddSplits(model, files); !added) return std::unexpected(added.error());
  return files;
}

}  // namespace quire::scheduler
