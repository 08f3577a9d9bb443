#include "server/cli/local_model.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "api/base/ascii.h"
#include "api/base/sha256.h"

namespace quire::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kStemMax = 60, kIdDigits = 12;

bool IsPath(std::string_view text) {
  return text.starts_with('.') || text.starts_with('/') || text.starts_with("~/") || text.ends_with('/') ||
         text.ends_with(".gguf") || text.ends_with(".safetensors");
}

// A part of a model's name.
std::string NamePart(const fs::path& path) {
  std::string part;
  for (const char c : path.stem().string()) {
    part += api::IsAsciiAlnum(c) || c == '-' || c == '_' || c == '.' ? c : '_';
  }
  part.resize(std::min(part.size(), kStemMax));
  if (part.empty() || !api::IsAsciiAlnum(part.front())) part.insert(0, "_");
  return api::AsciiLower(part);
}

std::string IdOf(const std::vector<LocalFile>& files) {
  std::string text;
  for (const LocalFile& file : files) {
    struct stat status {};
    ::stat(file.path.c_str(), &status);
    text += fmt::format("{} {} {} {} {}.{}\n", file.name, status.st_dev, status.st_ino, status.st_size,
                        status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
  }
  return api::Sha256Of(text).substr(0, kIdDigits);
}

}  // namespace

api::Result<std::optional<LocalModel>> FindLocalModel(const std::string& text) {
  if (!IsPath(text)) return std::nullopt;
  const char* home = std::getenv("HOME");
  auto plan = PlanFrom(text, fs::current_path(), home != nullptr ? home : "/");
  if (!plan) return std::unexpected(plan.error());
  plan->may_link = true;
  std::error_code unknown;
  fs::path path = fs::weakly_canonical(
      text.starts_with("~/") ? fs::path(home) / text.substr(2) : fs::path(text), unknown);
  if (path.filename().empty()) path = path.parent_path();
  std::string name = fmt::format("file/{}:{}", NamePart(path), IdOf(plan->files));
  return LocalModel{std::move(name), *std::move(plan)};
}

int StoreLocalModel(Client& client, const LocalModel& model) {
  const auto shown = client.Post("/api/show", Dump({{"model", model.name}}));
  if (shown || shown.error().code != api::ErrorCode::kNotFound) return 0;  // other errors come again
  return CreateFrom(client, model.name, model.plan);
}

}  // namespace quire::cli
