#include "server/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <system_error>
#include <utility>

#include "api/base/ascii.h"
#include "api/base/io_thread.h"
#include "server/nearest_name.h"
#include "server/option_values.h"
#include "server/registry/session.h"

namespace quire::server {
namespace {

// Types that other servers have: their users get the nearest one, which needs more memory and loses less.
constexpr auto kSmallKvTypes = std::to_array<std::string_view>({"q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl"});

ValidationError SetKvType(Options& options, std::string_view text) {
  const std::string name = api::AsciiLower(text);
  auto type = api::ParseKvType(name);
  if (!type && std::ranges::find(kSmallKvTypes, name) != kSmallKvTypes.end()) {
    type = api::KvType::kQ8_0;
    options.warnings.push_back(
        fmt::format("the KV cache type {} is not available, q8_0 is used instead", name));
  }
  if (!type) return fmt::format("must be {}", api::kKvTypeNames);
  options.runner_settings.kv_cache_type = *type;
  return std::nullopt;
}

ValidationError SetSnapshotBytes(Options& options, std::string_view text) {
  options.snapshot_bytes_auto = text == "auto";
  options.snapshot_bytes = 0;
  if (options.snapshot_bytes_auto || text == "0" || text == "off") return std::nullopt;
  if (SetBytes(options.snapshot_bytes, text))
    return "must be auto, 0, or a size from 1 byte to 1 TiB (\"20GiB\")";
  return std::nullopt;
}

ValidationError SetRedis(std::optional<RedisAddress>& out, std::string_view text) {
  auto address = ParseRedisUrl(text);
  if (!address) return address.error().message;
  out = *std::move(address);
  return std::nullopt;
}

// A cache directory of the service manager, or the user's.
std::filesystem::path CacheDirectory(const Environment& environment) {
  const auto of = [&](const char* name) { return environment(name).value_or(""); };
  if (const std::string own = of("CACHE_DIRECTORY"); own.starts_with('/'))
    return own.substr(0, own.find(':'));
  if (const std::string caches = of("XDG_CACHE_HOME"); caches.starts_with('/'))
    return std::filesystem::path(caches) / "quire";
  return HomeDirectory() / ".cache/quire";
}

ValidationError SetAccounts(std::map<std::string, std::string>& out, std::string_view text) {
  std::filesystem::path path;
  SetPath(path, text);
  auto accounts = registry::ReadAccounts(path);
  if (!accounts) return accounts.error().message;
  out = *std::move(accounts);
  return std::nullopt;
}

ValidationError SetKeys(Options& options, std::string_view text) {
  SetPath(options.keys_file, text);
  auto keys = KeyRing::Read(options.keys_file);
  if (!keys) return keys.error().message;
  if (keys->empty()) return "the file contains no keys";
  options.keys = *std::move(keys);
  return std::nullopt;
}

ValidationError SetHost(HostAddress& out, std::string_view text) {
  auto address = ParseHostAddress(text);
  if (!address) return address.error().message;
  out = std::move(*address);
  return std::nullopt;
}

ValidationError SetMetricsNames(bool& vllm, std::string_view text) {
  if (text != "vllm") return "must be vllm";
  vllm = true;
  return std::nullopt;
}

constexpr const char* kConfigFlag = "--config";

enum class Takes : uint8_t { kValue, kNothing };
enum class Changes : uint8_t { kAtStart, kAtReload };  // when a new value takes effect

struct OptionSpec {
  const char* flag;
  const char* variable;
  const char* unit;
  const char* default_text;  // empty: set by no value
  const char* help;
  ValidationError (*set)(Options&, std::string_view);
  Takes takes = Takes::kValue;
  Changes changes = Changes::kAtStart;
};

constexpr int32_t kIntMax = std::numeric_limits<int32_t>::max();

constexpr std::array kTable = {
    OptionSpec{kConfigFlag, "QUIRE_CONFIG", "FILE", "",
               "Configuration file, one VARIABLE=VALUE per line; reloaded on SIGHUP",
               [](Options&, std::string_view) { return ValidationError(); }},
    OptionSpec{"--host", "OLLAMA_HOST", "HOST:PORT", "127.0.0.1:11434", "Address to listen on",
               [](Options& o, std::string_view t) { return SetHost(o.host, t); }},
    OptionSpec{"--allow-remote", "QUIRE_ALLOW_REMOTE", "BOOL", "false",
               "Allow remote clients even without API keys (no authentication)",
               [](Options& o, std::string_view t) { return SetStrictBool(o.allow_remote, t); },
               Takes::kNothing},
    OptionSpec{"--keys", "QUIRE_KEYS", "FILE", "",
               "API key file (see \"quire key\"); default: the credential \"keys\", if present",
               [](Options& o, std::string_view t) { return SetKeys(o, t); }, Takes::kValue,
               Changes::kAtReload},
    OptionSpec{"--tls-host", "QUIRE_TLS_HOST", "HOST:PORT", "", "Also listen on this address with TLS",
               [](Options& o, std::string_view t) { return SetHost(o.tls_host.emplace(), t); }},
    OptionSpec{"--tls-cert", "QUIRE_TLS_CERT", "FILE", "",
               "TLS certificate chain (PEM); default: the credential \"tls-cert\"",
               [](Options& o, std::string_view t) { return SetPath(o.tls_cert, t); }, Takes::kValue,
               Changes::kAtReload},
    OptionSpec{"--tls-key", "QUIRE_TLS_KEY", "FILE", "",
               "TLS private key (PEM); default: the credential \"tls-key\"",
               [](Options& o, std::string_view t) { return SetPath(o.tls_key, t); }, Takes::kValue,
               Changes::kAtReload},
    OptionSpec{"--models", "OLLAMA_MODELS", "DIR", "~/.ollama/models", "Model store directory",
               [](Options& o, std::string_view t) {
                 SetPath(o.models, t);
                 std::error_code unknown;  // no working directory: the path as it is
                 const auto absolute = std::filesystem::absolute(o.models, unknown);
                 if (!unknown) o.models = absolute.lexically_normal();
                 return ValidationError();
               }},
    OptionSpec{"--origins", "OLLAMA_ORIGINS", "LIST", "",
               "Additional allowed web origins, separated by commas",
               [](Options& o, std::string_view t) { return SetList(o.origins, t); }, Takes::kValue,
               Changes::kAtReload},
    OptionSpec{"--keep-alive", "OLLAMA_KEEP_ALIVE", "DURATION", "5m",
               "How long a model stays loaded after its last request; negative = never expires",
               [](Options& o, std::string_view t) { return SetDuration(o.keep_alive, t); }},
    OptionSpec{"--context-length", "OLLAMA_CONTEXT_LENGTH", "TOKENS", "0",
               "Default context length; 0 = the model's trained length, cut to what memory holds",
               [](Options& o, std::string_view t) { return SetWhole(o.context_length, t, 0, kIntMax); }},
    OptionSpec{"--max-loaded-models", "OLLAMA_MAX_LOADED_MODELS", "COUNT", "0",
               "Maximum loaded models; 0 = 3",
               [](Options& o, std::string_view t) { return SetWhole(o.max_loaded_models, t, 0, 1024); }},
    OptionSpec{"--max-queue", "OLLAMA_MAX_QUEUE", "COUNT", "512",
               "Maximum queued requests; an eighth more of other keys, further ones are rejected",
               [](Options& o, std::string_view t) { return SetWhole(o.max_queue, t, 1, 1 << 20); }},
    OptionSpec{
        "--threads", "QUIRE_THREADS", "COUNT", "0", "Compute threads per model; 0 = auto",
        [](Options& o, std::string_view t) { return SetWhole(o.runner_settings.threads, t, 0, 4096); }},
    OptionSpec{
        "--snapshot-bytes", "QUIRE_SNAPSHOT_BYTES", "BYTES", "auto",
        "Disk space for computed prompt prefixes, which survive unloads and restarts; auto = a tenth of the "
        "free space, 0 = none",
        [](Options& o, std::string_view t) { return SetSnapshotBytes(o, t); }},
    OptionSpec{
        "--snapshot-dir", "QUIRE_SNAPSHOT_DIR", "DIR", "",
        "Directory of the prefixes on disk; default: prefixes in the service's cache directory, else in "
        "~/.cache/quire",
        [](Options& o, std::string_view t) { return SetPath(o.snapshot_dir, t); }},
    OptionSpec{"--memory", "QUIRE_MEMORY", "BYTES", "",
               "Memory budget of all loaded models; default: auto (cgroup and machine limits)",
               [](Options& o, std::string_view t) { return SetBytes(o.memory_bytes, t); }},
    OptionSpec{"--kv-cache-type", "OLLAMA_KV_CACHE_TYPE", "TYPE", "i16",
               "KV cache type: i16, f16, bf16, q8_0 or f32; q4_0 and other smaller types count as q8_0",
               [](Options& o, std::string_view t) { return SetKvType(o, t); }},
    OptionSpec{"--debug", "OLLAMA_DEBUG", "LEVEL", "0", "0 = log requests, 1 = debug, 2 = trace",
               [](Options& o, std::string_view t) { return SetDebug(o.debug, t); }, Takes::kValue,
               Changes::kAtReload},
    OptionSpec{"--max-body", "QUIRE_MAX_BODY", "BYTES", "",
               "Maximum request body size; default: 100MiB, or an eighth of the memory reserve if less",
               [](Options& o, std::string_view t) { return SetBytes(o.max_body_bytes, t); }, Takes::kValue,
               Changes::kAtReload},
    // From here on behind --help-all.
    OptionSpec{"--unix-socket", "QUIRE_UNIX_SOCKET", "PATH", "",
               "Also listen on this Unix socket (owner and group only)",
               [](Options& o, std::string_view t) { return SetPath(o.unix_socket, t); }},
    OptionSpec{"--max-queue-per-model", "QUIRE_MAX_QUEUE_PER_MODEL", "COUNT", "0",
               "Maximum queued requests per model; 0 = three quarters of --max-queue",
               [](Options& o, std::string_view t) { return SetWhole(o.max_queue_per_model, t, 0, 1 << 20); }},
    OptionSpec{"--queue-timeout", "QUIRE_QUEUE_TIMEOUT", "DURATION", "0s",
               "Maximum time in the queue; 0 or less = no limit",
               [](Options& o, std::string_view t) { return SetDuration(o.queue_timeout, t); }},
    OptionSpec{"--load-timeout", "OLLAMA_LOAD_TIMEOUT", "DURATION", "5m",
               "Maximum model load time; 0 or less = no limit",
               [](Options& o, std::string_view t) { return SetDuration(o.load_timeout, t); }},
    OptionSpec{"--cache-bytes", "QUIRE_CACHE_BYTES", "BYTES", "", "Cache memory per model; default: auto",
               [](Options& o, std::string_view t) { return SetBytes(o.runner_settings.cache_bytes, t); }},
    OptionSpec{"--snapshot-redis", "QUIRE_SNAPSHOT_REDIS", "URL", "",
               "Redis or Valkey server that shares the prefixes with other machines: "
               "redis://[USER:PASSWORD@]HOST[:PORT][/DB], rediss:// for TLS, unix:///PATH",
               [](Options& o, std::string_view t) { return SetRedis(o.snapshot_redis, t); }},
    OptionSpec{"--snapshot-redis-secret", "QUIRE_SNAPSHOT_REDIS_SECRET", "FILE", "",
               "Secret that all these machines have, at least 16 bytes",
               [](Options& o, std::string_view t) { return SetRedisSecret(o.snapshot_redis_secret, t); }},
    OptionSpec{"--snapshot-redis-ca", "QUIRE_SNAPSHOT_REDIS_CA", "FILE", "",
               "Certificates that sign the Redis server's (PEM); default: the system's",
               [](Options& o, std::string_view t) { return SetPath(o.snapshot_redis_ca, t); }},
    OptionSpec{"--numa", "QUIRE_NUMA", "MODE", "auto",
               "Memory of runners on several NUMA nodes: interleave = the nodes of their processors in turn, "
               "replicate = "
               "weights once on each of these nodes, off = the kernel's choice, auto = interleave if their "
               "processors are "
               "on several nodes",
               [](Options& o, std::string_view t) { return SetNuma(o.numa, t); }},
    OptionSpec{"--weights-budget", "QUIRE_WEIGHTS_BUDGET", "BYTES", "",
               "Memory for the weights of a model; the rest is streamed from its files for every product; "
               "default: auto (all weights, or what fits in the memory budget)",
               [](Options& o, std::string_view t) { return SetBytes(o.runner_settings.weights_budget, t); }},
    OptionSpec{
        "--prefix-cache", "QUIRE_PREFIX_CACHE", "BOOL", "true",
        "Reuse computed prompt prefixes across requests",
        [](Options& o, std::string_view t) { return SetStrictBool(o.runner_settings.prefix_cache, t); }},
    OptionSpec{
        "--model-sampling", "QUIRE_MODEL_SAMPLING", "BOOL", "true",
        "Sampling that a model's files recommend is its default, and their banned tokens and stop strings "
        "count",
        [](Options& o, std::string_view t) { return SetStrictBool(o.runner_settings.model_sampling, t); }},
    OptionSpec{"--quantize-on-load", "QUIRE_QUANTIZE_ON_LOAD", "TYPE", "",
               "Quantize floating-point models at load time to this type (Q8_0, Q6_K, Q4_K, Q4_0); default: "
               "do not quantize",
               [](Options& o, std::string_view t) {
                 o.runner_settings.quantize_on_load = t;
                 return ValidationError();
               }},
    OptionSpec{
        "--state-cache-type", "QUIRE_STATE_CACHE_TYPE", "TYPE", "f32",
        "Type of recurrent states in the prefix cache: f32, or bf16 or q8_0 for less memory; answers that "
        "continue a cached prefix then differ in their last bits",
        [](Options& o, std::string_view t) { return SetStateType(o.runner_settings.state_cache_type, t); }},
    OptionSpec{"--runner", "QUIRE_RUNNER", "FILE", "", "Path of quire-runner; default: next to this program",
               [](Options& o, std::string_view t) { return SetPath(o.runner, t); }},
    OptionSpec{"--require-sandbox", "QUIRE_REQUIRE_SANDBOX", "BOOL", "false",
               "Load no model if its runner cannot be confined: a filter of the service or container denies "
               "seccomp or Landlock",
               [](Options& o, std::string_view t) { return SetStrictBool(o.require_sandbox, t); }},
    OptionSpec{"--registries", "QUIRE_REGISTRIES", "LIST", "",
               "Trusted registries (host or host:port, separated by commas); they may have private addresses "
               "and use HTTP",
               [](Options& o, std::string_view t) { return SetList(o.registries, t); }},
    OptionSpec{"--registry-auth", "QUIRE_REGISTRY_AUTH", "FILE", "",
               "Docker configuration file (config.json) with registry credentials",
               [](Options& o, std::string_view t) { return SetAccounts(o.registry_accounts, t); }},
    OptionSpec{"--metrics-compat", "QUIRE_METRICS_COMPAT", "LIST", "",
               "vllm: also export metrics under vLLM's names, for routers that expect them",
               [](Options& o, std::string_view t) { return SetMetricsNames(o.vllm_metrics, t); }},
    OptionSpec{"--otlp-endpoint", "QUIRE_OTLP_ENDPOINT", "URL", "",
               "Send traces of requests to this OpenTelemetry collector (OTLP over HTTP), such as "
               "http://127.0.0.1:4318",
               [](Options& o, std::string_view t) { return SetCollector(o.otlp_endpoint, t); }},
    OptionSpec{"--drain-timeout", "QUIRE_DRAIN_TIMEOUT", "DURATION", "30s",
               "How long running requests may continue after SIGTERM",
               [](Options& o, std::string_view t) { return SetPositiveDuration(o.drain_timeout, t); },
               Takes::kValue, Changes::kAtReload},
    OptionSpec{"--max-connections", "QUIRE_MAX_CONNECTIONS", "COUNT", "4096", "Maximum open connections",
               [](Options& o, std::string_view t) { return SetWhole(o.max_connections, t, 1U, 1U << 20); },
               Takes::kValue, Changes::kAtReload},
};

constexpr size_t kListed = static_cast<size_t>(
    std::ranges::find(kTable, std::string_view("--unix-socket"), &OptionSpec::flag) - kTable.begin());

// What earlier versions had: accepted, without effect, so that an upgrade stops no service.
struct RemovedSpec {
  const char* flag;
  const char* variable;
  const char* instead;
};
constexpr auto kRemoved = std::to_array<RemovedSpec>({
    {"--suspend-after", "QUIRE_SUSPEND_AFTER", "answers give way to another model after 10 s"},
    {"--stall-timeout", "QUIRE_STALL_TIMEOUT", "a runner without progress is replaced after 8 s"},
    {"--prepare-time", "QUIRE_PREPARE_TIME", "a request is prepared in at most 1 s of CPU time"},
    {"--snapshot-redis-ttl", "QUIRE_SNAPSHOT_REDIS_TTL", "Redis keeps a prefix for 24 h"},
    {"--kv-events", "QUIRE_KV_EVENTS", "a consistent hash of the conversation keeps it on its node"},
    {"--idle-timeout", "QUIRE_IDLE_TIMEOUT", "an idle connection is closed after 2 min"},
    {"--header-timeout", "QUIRE_HEADER_TIMEOUT", "a request header may take 30 s"},
    {"--body-timeout", "QUIRE_BODY_TIMEOUT", "a request body may come slower than 16 KiB/s for 30 s"},
    {"--body-rate-min", "QUIRE_BODY_RATE_MIN", "a request body may come slower than 16 KiB/s for 30 s"},
    {"--write-timeout", "QUIRE_WRITE_TIMEOUT", "a client may take nothing for 1 min"},
});

using Settings = std::map<std::string, std::string, std::less<>>;

// The variable that was probably meant.
std::string NearestVariable(std::string_view name) {
  std::vector<std::string_view> variables;
  for (const OptionSpec& spec : kTable) variables.emplace_back(spec.variable);
  return std::string(NearestName(name, variables));
}

// The settings of a configuration file. A name that no option has is an error: it is a slip, or it is meant
// for another program, and then it is not in this file.
api::Result<Settings> ReadConfig(const std::filesystem::path& path) {
  const auto fail = [&path](const std::string& why) {
    return api::Fail(api::ErrorCode::kInvalidArgument, fmt::format("{}: {}", path.string(), why));
  };
  api::AssertMayBlock();
  std::ifstream file(path);
  if (!file) return fail(std::generic_category().message(errno));
  Settings settings;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    const std::string_view text = TrimmedValue(line);
    if (text.empty() || text[0] == '#') continue;
    const size_t equals = text.find('=');
    const std::string_view name = TrimmedValue(text.substr(0, equals));
    const bool known = std::ranges::find(kTable, name, &OptionSpec::variable) != kTable.end() ||
                       std::ranges::find(kRemoved, name, &RemovedSpec::variable) != kRemoved.end();
    if (equals == std::string_view::npos) return fail(fmt::format("line {}: not NAME=VALUE", number));
    if (!known)
      return fail(fmt::format("line {}: unknown setting \"{}\"; the nearest is {}", number, name,
                              NearestVariable(name)));
    settings.insert_or_assign(std::string(name), std::string(TrimmedValue(text.substr(equals + 1))));
  }
  if (file.bad()) return fail("cannot be read");
  return settings;
}

// Files from the service manager, unless another setting overrides them.
ValidationError ApplyCredentials(Options& options, const std::filesystem::path& folder) {
  const auto credential = [&folder](const char* name) {
    const std::filesystem::path path = folder / name;
    std::error_code ec;
    return !folder.empty() && std::filesystem::exists(path, ec) ? path : std::filesystem::path();
  };
  if (options.keys_file.empty()) {
    if (const auto path = credential("keys"); !path.empty()) {
      auto keys = KeyRing::Read(path);  // an empty one, as packages bring along, means that there are none
      if (!keys) return keys.error().message;
      options.keys_file = path;
      options.keys = *std::move(keys);
    }
  }
  if (options.tls_cert.empty()) options.tls_cert = credential("tls-cert");
  if (options.tls_key.empty()) options.tls_key = credential("tls-key");
  if (options.tls_host && (options.tls_cert.empty() || options.tls_key.empty())) {
    return "QUIRE_TLS_HOST requires a certificate (--tls-cert) and its private key (--tls-key)";
  }
  return std::nullopt;
}

}  // namespace

Environment ProcessEnvironment() {
  return [](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

OptionTable::OptionTable() : flags_(kTable.size()), removed_(kRemoved.size()) {}

void OptionTable::AddTo(CLI::App& app) {
  for (size_t i = 0; i < kTable.size(); ++i) {
    const OptionSpec& spec = kTable[i];
    const std::string help = fmt::format("{} [{}{}{}]", spec.help, spec.variable,
                                         *spec.default_text != '\0' ? ", default " : "", spec.default_text);
    if (spec.takes == Takes::kNothing) {
      app.add_flag_callback(
          spec.flag, [this, i] { flags_[i] = "true"; }, help);
    } else {
      app.add_option(spec.flag, flags_[i], help)->type_name(spec.unit);
    }
    if (i >= kListed) app.get_option(spec.flag)->group(kRareOptions);
  }
  for (size_t i = 0; i < kRemoved.size(); ++i) app.add_option(kRemoved[i].flag, removed_[i])->group("");
}

api::Result<Options> OptionTable::Resolve(const Environment& environment) const {
  const auto said = [&](size_t i) { return std::string(TrimmedValue(flags_[i])); };
  const auto of_environment = [&](const char* name) {
    return std::string(TrimmedValue(environment(name).value_or("")));
  };
  std::string config = said(0);
  if (config.empty()) config = of_environment(kTable[0].variable);
  Settings settings;
  if (!config.empty()) {
    std::filesystem::path path;
    SetPath(path, config);
    auto read = ReadConfig(path);
    if (!read) return std::unexpected(read.error());
    settings = *std::move(read);
  }

  Options options;
  for (size_t i = 0; i < kTable.size(); ++i) {
    const OptionSpec& spec = kTable[i];
    std::string source = spec.flag;
    std::string text = said(i);
    if (text.empty()) {
      source = spec.variable;
      text = of_environment(spec.variable);
    }
    if (const auto set = settings.find(spec.variable); text.empty() && set != settings.end()) {
      source = fmt::format("{}: {}", config, spec.variable);
      text = set->second;
    }
    if (text.empty()) text = spec.default_text;
    options.texts.push_back(text);
    if (text.empty()) continue;
    if (const ValidationError error = spec.set(options, text)) {
      return api::Fail(api::ErrorCode::kInvalidArgument, fmt::format("{}: \"{}\": {}", source, text, *error),
                       source);
    }
  }
  for (size_t i = 0; i < kRemoved.size(); ++i) {
    const RemovedSpec& removed = kRemoved[i];
    if (removed_[i].empty() && of_environment(removed.variable).empty() &&
        !settings.contains(removed.variable))
      continue;
    options.warnings.push_back(
        fmt::format("{} ({}) is no option any more: {}", removed.variable, removed.flag, removed.instead));
  }
  if (options.snapshot_redis && options.snapshot_redis_secret.empty()) {
    return api::Fail(api::ErrorCode::kInvalidArgument,
                     "QUIRE_SNAPSHOT_REDIS needs QUIRE_SNAPSHOT_REDIS_SECRET, a secret of all its machines");
  }
  if (options.snapshot_redis && options.snapshot_redis->tls)
    options.snapshot_redis->ca_file = options.snapshot_redis_ca;
  if (options.snapshot_dir.empty()) options.snapshot_dir = CacheDirectory(environment) / "prefixes";
  if (const ValidationError error = ApplyCredentials(options, of_environment("CREDENTIALS_DIRECTORY"))) {
    return api::Fail(api::ErrorCode::kInvalidArgument, *error);
  }
  return options;
}

std::vector<std::string> NeedRestart(const Options& before, const Options& after) {
  std::vector<std::string> names;
  for (size_t i = 0; i < kTable.size(); ++i) {
    if (kTable[i].changes == Changes::kAtStart && before.texts[i] != after.texts[i]) {
      names.emplace_back(kTable[i].variable);
    }
  }
  return names;
}

}  // namespace quire::server
