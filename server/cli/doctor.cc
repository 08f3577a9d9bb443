#include "server/cli/doctor.h"

#include <fmt/format.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "server/cli/path_access.h"
#include "server/routes/applied_filters.h"
#include "server/store/bundled_models.h"

namespace quire::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kServiceUser = "quire";
constexpr const char* kConfig = "/etc/quire/quire.conf";
constexpr const char* kKeys = "/etc/quire/keys";
constexpr const char* kServiceModels = "/var/lib/quire/models";
constexpr double kDiskUnit = double{1 << 30};  // GiB

class Findings {
 public:
  void Good(const std::string& what, const std::string& detail) { Line("ok  ", what, detail); }
  void Info(const std::string& what, const std::string& detail) { Line("note", what, detail); }
  void Bad(const std::string& what, const std::string& detail) {
    Line("BAD ", what, detail);
    ++bad_;
  }
  int bad() const { return bad_; }

 private:
  static void Line(const char* verdict, const std::string& what, const std::string& detail) {
    fmt::print("{}  {}: {}\n", verdict, what, detail);
  }
  int bad_ = 0;
};

// Settings as the packaged service has them, or as this shell has them.
api::Result<server::Options> Settings(bool service) {
  const server::OptionTable table;
  if (!service) return table.Resolve(server::ProcessEnvironment());
  const std::map<std::string, std::string> variables = {{"QUIRE_CONFIG", kConfig},
                                                        {"OLLAMA_MODELS", kServiceModels}};
  return table.Resolve([&variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

void LookAtPath(Findings& findings, const std::string& what, const fs::path& path,
                const server::UserAccount& account, server::AccessMode mode) {
  if (const auto access_error = server::FindAccessError(path, account, mode)) {
    findings.Bad(what, *access_error);
  } else {
    findings.Good(what, fmt::format("{}: {} has access", path.string(), account.name));
  }
}

// The folder, or the nearest one above it that there is: the daemon makes the rest.
fs::path NearestThere(fs::path path) {
  std::error_code ec;
  while (!fs::exists(path, ec) && path.has_relative_path()) path = path.parent_path();
  return path;
}

void LookAtSpace(Findings& findings, const fs::path& path) {
  struct statvfs disk {};
  if (::statvfs(path.c_str(), &disk) != 0) return;
  const double free = static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize) / kDiskUnit;
  const std::string text = fmt::format("{:.1f} GiB free at {}", free, path.string());
  if (free < 1) {
    findings.Bad("disk", text + ": not enough for most models");
  } else {
    findings.Good("disk", text);
  }
}

void LookAtKeys(Findings& findings, const fs::path& path) {
  std::error_code ec;
  if (!fs::exists(path, ec)) return;
  const auto keys = server::KeyRing::Read(path);
  if (!keys) {
    findings.Bad("keys", keys.error().message);
  } else if (keys->empty()) {
    findings.Info("keys", path.string() + " contains no keys: every local client has full access");
  } else {
    findings.Good("keys", fmt::format("{} in {}", keys->size(), path.string()));
  }
}

fs::path OwnFolder() {
  std::error_code ec;
  return fs::read_symlink("/proc/self/exe", ec).parent_path();
}

void LookAtPrograms(Findings& findings, const server::UserAccount& account) {
  const fs::path here = OwnFolder();
  for (const fs::path& runner : {here / "quire-runner", here / "../lib/quire/quire-runner"}) {
    std::error_code ec;
    if (fs::exists(runner, ec))
      return LookAtPath(findings, "runner", runner, account, server::AccessMode::kRead);
  }
  findings.Bad("runner", "quire-runner is not next to this program: no model can be loaded");
}

void LookAtKernel(Findings& findings) {
  constexpr int kVersionFlag = 1;  // LANDLOCK_CREATE_RULESET_VERSION
  const long version = ::syscall(SYS_landlock_create_ruleset, nullptr, 0, kVersionFlag);
  if (version > 0) {
    findings.Good("kernel", fmt::format("runners have no file access (Landlock {})", version));
  } else {
    findings.Info(
        "kernel",
        "Landlock is not available: while a model loads, its runner can read all files of its user");
  }
}

// The daemon that commands of this shell ask.
void LookAtDaemon(Findings& findings, const api::Result<Endpoint>& endpoint) {
  if (!endpoint) return findings.Bad("daemon", endpoint.error().message);
  Client client(*endpoint);
  const auto version = client.Get("/api/version");
  if (!version) return findings.Info("daemon", version.error().message);
  const auto json = nlohmann::json::parse(*version, nullptr, false);
  findings.Good("daemon", fmt::format("version {} answers at {}",
                                      json.is_object() ? json.value("version", "?") : "?", client.Url()));
}

// The process that started another one, if that is a runner.
std::optional<int> DaemonOf(const fs::path& process) {
  std::ifstream file(process / "status");
  std::string field;
  std::string name;
  int parent = 0;
  if (!(file >> field >> name) || name != "quire-runner") return std::nullopt;
  while (file >> field) {
    if (field == "PPid:" && file >> parent) return parent;
  }
  return std::nullopt;
}

void LookAtRunner(Findings& findings, int pid, int daemon) {
  const auto all = server::AppliedFilters(pid);
  if (!all) return;
  const int own = *all - server::AppliedFilters(daemon).value_or(0);
  const std::string text =
      fmt::format("runner {} has {} of {} filters of system calls", pid, own, server::kFiltersOfARunner);
  if (own >= server::kFiltersOfARunner) return findings.Good("sandbox", text);
  if (own > 0) return findings.Info("sandbox", text + ": it loads a model");
  findings.Bad("sandbox", text + ": a filter of the service or container denies seccomp (see its log)");
}

void LookAtRunners(Findings& findings) {
  std::error_code ec;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", ec)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (const auto daemon = DaemonOf(entry.path())) LookAtRunner(findings, std::atoi(name.c_str()), *daemon);
  }
}

}  // namespace

bool IsService() {
  std::error_code ec;
  return fs::exists(kConfig, ec) && server::FindUserAccount(kServiceUser).has_value();
}

int Doctor(const DoctorOptions& options, const api::Result<Endpoint>& endpoint) {
  Findings findings;
  const bool service = IsService();
  const std::string user = !options.user.empty() ? options.user : service ? kServiceUser : "";
  const auto account = server::FindUserAccount(user);
  if (!account) {
    findings.Bad("user", fmt::format("no such user: {}", user));
    return 1;
  }
  findings.Good("user", fmt::format("{} ({})", account->name, account->uid));

  const auto settings = Settings(service);
  if (!settings) {
    findings.Bad("settings", settings.error().message);
  } else {
    findings.Good("settings", service ? kConfig : "from this shell");
    const fs::path models = NearestThere(settings->models);
    LookAtPath(findings, "models", models, *account, server::AccessMode::kWrite);
    LookAtSpace(findings, models);
    for (const auto& [what, path] :
         {std::pair{"certificate", settings->tls_cert}, {"private key", settings->tls_key}}) {
      if (!path.empty()) LookAtPath(findings, what, path, *account, server::AccessMode::kRead);
    }
  }
  if (service) {
    LookAtPath(findings, "settings", kConfig, *account, server::AccessMode::kRead);
    LookAtKeys(findings, kKeys);
  }
  LookAtPrograms(findings, *account);
  if (const auto bundled = server::FindBundledModels(OwnFolder())) {
    LookAtPath(findings, "bundled model", *bundled, *account, server::AccessMode::kRead);
  }
  LookAtKernel(findings);
  LookAtDaemon(findings, endpoint);
  LookAtRunners(findings);
  return findings.bad() > 0 ? 1 : 0;
}

}  // namespace quire::cli
