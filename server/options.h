// The daemon's settings: one table of options, each with its flag, environment variable, unit, default
// and help. A flag goes over the environment, that over the configuration file, that over the default.
//
// The configuration file has lines NAME=VALUE with the variables' names; quotes around a value, empty lines
// and lines that begin with '#' are ignored. Resolving again reloads it and the files that it names.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "api/ipc/messages.h"
#include "server/host_address.h"
#include "server/http/api_keys.h"
#include "server/tier/redis_client.h"

namespace CLI {
class App;
}

namespace quire::server {

struct Options {
  HostAddress host;
  std::optional<HostAddress> tls_host;
  std::filesystem::path tls_cert, tls_key;
  std::filesystem::path unix_socket;  // empty: none
  bool allow_remote = false;
  std::filesystem::path keys_file;  // empty: no keys
  KeyRing keys;
  std::filesystem::path models;  // never empty once resolved
  std::filesystem::path runner;  // empty: beside this program
  bool require_sandbox = false;
  std::vector<std::string> origins;
  std::chrono::nanoseconds keep_alive{};     // < 0 = never expires, 0 = unload at once
  std::chrono::nanoseconds load_timeout{};   // <= 0 = no limit
  std::chrono::nanoseconds queue_timeout{};  // <= 0 = no limit
  int32_t context_length = 0;                // tokens; 0 = the trained length, cut to what memory holds
  int32_t max_loaded_models = 0;             // 0 = the built-in default
  int32_t max_queue = 0;
  int32_t max_queue_per_model = 0;  // 0 = three quarters of max_queue
  api::ipc::RunnerSettings runner_settings;
  std::string numa;  // "auto", "interleave", "replicate" or "off"; empty = the runner's default
  std::filesystem::path snapshot_dir;
  uint64_t snapshot_bytes = 0;                 // of prefix snapshots on disk; 0 = none
  bool snapshot_bytes_auto = false;            // a share of the free disk space instead
  std::optional<RedisAddress> snapshot_redis;  // shares them with other machines
  std::string snapshot_redis_secret;           // of those machines; not empty where `snapshot_redis` is
  std::filesystem::path snapshot_redis_ca;
  uint64_t memory_bytes = 0;                             // of all runners together; 0 = auto
  std::vector<std::string> registries;                   // trusted ones: "host" or "host:port"
  std::map<std::string, std::string> registry_accounts;  // by host: base64 of "user:password"
  std::string otlp_endpoint;                             // a collector of traces; empty: none
  bool vllm_metrics = false;                             // some metrics under vLLM's names too
  int32_t debug = 0;                                     // 0 info, 1 debug, 2 trace
  uint64_t max_body_bytes = 0;                           // 0: by the memory reserve
  uint32_t max_connections = 0;
  std::chrono::nanoseconds drain_timeout{};

  std::vector<std::string> warnings;  // for the log: what is not used as it was set
  std::vector<std::string> texts;     // what each option was set to, in the table's order
};

// Names (as variables) of the options that differ and that a running daemon cannot change.
std::vector<std::string> NeedRestart(const Options& before, const Options& after);

// A variable's value, or nothing when it is not set.
using Environment = std::function<std::optional<std::string>(const char* name)>;
Environment ProcessEnvironment();

// The group of the options that --help leaves out.
inline constexpr const char* kRareOptions = "Rarely used options";

class OptionTable {
 public:
  OptionTable();

  // Adds the flags; their values land in this table, which must outlive the parse.
  void AddTo(CLI::App& app);
  // Errors name the flag, the variable or the file's line, and what it must be.
  api::Result<Options> Resolve(const Environment& environment) const;

 private:
  std::vector<std::string> flags_;    // what the command line said, by index; empty = nothing
  std::vector<std::string> removed_;  // likewise, for options of earlier versions
};

}  // namespace quire::server
