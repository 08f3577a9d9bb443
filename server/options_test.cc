#include "server/options.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <map>

namespace quire::server {
namespace {

using namespace std::chrono_literals;

Environment Of(std::map<std::string, std::string> variables) {
  return [variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

api::Result<Options> Resolve(std::vector<std::string> arguments,
                             std::map<std::string, std::string> variables = {}) {
  OptionTable table;
  CLI::App app;
  table.AddTo(app);
  std::ranges::reverse(arguments);  // CLI11 takes them last first
  app.parse(arguments);
  return table.Resolve(Of(std::move(variables)));
}

TEST(HostAddress, ReadsWhatOllamaReads) {
  struct Case {
    const char* text;
    const char* host;
    int port;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"", "127.0.0.1", 11434},
           {"1.2.3.4", "1.2.3.4", 11434},
           {"1.2.3.4:8080", "1.2.3.4", 8080},
           {" \"example.com:80\" ", "example.com", 80},
           {"http://1.2.3.4", "1.2.3.4", 80},
           {"https://example.com", "example.com", 443},
           {"https://example.com:8443/path/x", "example.com", 8443},
           {"example.com/path", "example.com", 11434},
           {"[::1]", "::1", 11434},
           {"[::1]:99", "::1", 99},
           {"::1", "::1", 11434},
           {":80", "0.0.0.0", 80},
           {"1.2.3.4:", "1.2.3.4", 11434},
           {"1.2.3.4:-1", "1.2.3.4", 11434},
           {"1.2.3.4:65536", "1.2.3.4", 11434},
           {"1.2.3.4:x", "1.2.3.4", 11434},
           {"1.2.3.4:0", "1.2.3.4", 0},
       }) {
    const auto address = ParseHostAddress(c.text);
    ASSERT_TRUE(address.has_value()) << c.text;
    EXPECT_EQ(address->host, c.host) << c.text;
    EXPECT_EQ(address->port, c.port) << c.text;
  }
  EXPECT_EQ(ParseHostAddress("unix:///run/quire.sock")->unix_socket, "/run/quire.sock");
  EXPECT_FALSE(ParseHostAddress("unix://quire.sock").has_value());
  EXPECT_FALSE(ParseHostAddress("a b").has_value());
  EXPECT_FALSE(ParseHostAddress("[::1").has_value());
  EXPECT_FALSE(ParseHostAddress("user@host").has_value());
}

TEST(Options, Defaults) {
  const auto options = Resolve({});
  ASSERT_TRUE(options.has_value()) << options.error().message;
  EXPECT_EQ(options->host.host, "127.0.0.1");
  EXPECT_EQ(options->host.port, 11434);
  EXPECT_FALSE(options->allow_remote);
  EXPECT_TRUE(options->models.string().ends_with(".ollama/models"));
  EXPECT_EQ(options->keep_alive, 5min);
  EXPECT_EQ(options->load_timeout, 5min);
  EXPECT_EQ(options->max_queue, 512);
  EXPECT_EQ(options->context_length, 0);
  EXPECT_EQ(options->max_body_bytes, 0u);
  EXPECT_EQ(options->drain_timeout, 30s);
  EXPECT_TRUE(options->runner.empty());
  EXPECT_TRUE(options->origins.empty());
  EXPECT_EQ(options->runner_settings.kv_cache_type, api::kDefaultKvType);
  EXPECT_EQ(options->runner_settings.state_cache_type, api::KvType::kF32);
}

TEST(Options, StatesAreKeptInTypesOfTheirRange) {
  EXPECT_EQ(Resolve({"--state-cache-type", "BF16"}, {})->runner_settings.state_cache_type,
            api::KvType::kBF16);
  EXPECT_EQ(Resolve({}, {{"QUIRE_STATE_CACHE_TYPE", "q8_0"}})->runner_settings.state_cache_type,
            api::KvType::kQ8_0);
  for (const char* type : {"f16", "q4_0"}) {
    EXPECT_FALSE(Resolve({"--state-cache-type", type}, {}).has_value()) << type;
  }
}

TEST(Options, WeightsHaveABudget) {
  EXPECT_EQ(Resolve({}, {})->runner_settings.weights_budget, 0);
  EXPECT_EQ(Resolve({"--weights-budget", "8GiB"}, {})->runner_settings.weights_budget, int64_t{8} << 30);
  EXPECT_EQ(Resolve({}, {{"QUIRE_WEIGHTS_BUDGET", "1"}})->runner_settings.weights_budget, 1);
  EXPECT_FALSE(Resolve({"--weights-budget", "0"}, {}).has_value());
}

TEST(Options, RunnersGetTheirNumaMode) {
  EXPECT_EQ(Resolve({}, {})->numa, "auto");
  EXPECT_EQ(Resolve({"--numa", "Interleave"}, {{"QUIRE_NUMA", "off"}})->numa, "interleave");
  EXPECT_EQ(Resolve({}, {{"QUIRE_NUMA", "off"}})->numa, "off");
  EXPECT_EQ(Resolve({"--numa", "replicate"}, {})->numa, "replicate");
  EXPECT_FALSE(Resolve({"--numa", "replicated"}, {}).has_value());
}

TEST(Options, FlagsGoOverTheEnvironment) {
  const auto options = Resolve({"--max-queue", "7", "--allow-remote", "--host=0.0.0.0:1"},
                               {{"OLLAMA_MAX_QUEUE", "9"},
                                {"OLLAMA_HOST", "10.0.0.1"},
                                {"OLLAMA_KEEP_ALIVE", "'-1'"},
                                {"OLLAMA_MODELS", "\"/srv/models\""},
                                {"OLLAMA_ORIGINS", "https://a.example, https://b.example,,"},
                                {"OLLAMA_LOAD_TIMEOUT", "90"},
                                {"OLLAMA_CONTEXT_LENGTH", " 8192 "},
                                {"OLLAMA_DEBUG", "2"},
                                {"OLLAMA_KV_CACHE_TYPE", "Q8_0"},
                                {"QUIRE_MAX_BODY", "2KiB"}});
  ASSERT_TRUE(options.has_value()) << options.error().message;
  EXPECT_EQ(options->max_queue, 7);
  EXPECT_TRUE(options->allow_remote);
  EXPECT_EQ(options->host.host, "0.0.0.0");
  EXPECT_LT(options->keep_alive, 0s);
  EXPECT_EQ(options->models, "/srv/models");
  EXPECT_EQ(options->origins, (std::vector<std::string>{"https://a.example", "https://b.example"}));
  EXPECT_EQ(options->load_timeout, 90s);
  EXPECT_EQ(options->context_length, 8192);
  EXPECT_EQ(options->debug, 2);
  EXPECT_EQ(options->runner_settings.kv_cache_type, api::KvType::kQ8_0);
  EXPECT_EQ(options->max_body_bytes, 2048u);
}

TEST(Options, SmallerKvCacheTypesFallBackWithAWarning) {
  EXPECT_TRUE(Resolve({}, {{"OLLAMA_KV_CACHE_TYPE", "q8_0"}})->warnings.empty());
  for (const char* type : {"q4_0", "Q4_1", "q5_0", "q5_1", "iq4_nl"}) {
    const auto options = Resolve({}, {{"OLLAMA_KV_CACHE_TYPE", type}});
    ASSERT_TRUE(options.has_value()) << options.error().message;
    EXPECT_EQ(options->runner_settings.kv_cache_type, api::KvType::kQ8_0);
    ASSERT_EQ(options->warnings.size(), 1U);
    EXPECT_NE(options->warnings[0].find("q8_0 is used instead"), std::string::npos);
  }
}

TEST(Options, RemovedOnesAreTakenWithAWarning) {
  const auto options =
      Resolve({"--stall-timeout", "3s", "--write-timeout=1h"}, {{"QUIRE_KV_EVENTS", "tcp://127.0.0.1:5557"}});
  ASSERT_TRUE(options.has_value()) << options.error().message;
  ASSERT_EQ(options->warnings.size(), 3U);
  EXPECT_EQ(options->warnings[0],
            "QUIRE_STALL_TIMEOUT (--stall-timeout) is no option any more: a runner without progress is "
            "replaced after 8 s");
  EXPECT_NE(options->warnings[1].find("QUIRE_KV_EVENTS"), std::string::npos);
  EXPECT_NE(options->warnings[2].find("QUIRE_WRITE_TIMEOUT"), std::string::npos);
}

TEST(Options, DebugTakesLevelsAndBooleans) {
  for (const auto& [text, level] : std::map<std::string, int>{
           {"", 0}, {"0", 0}, {"1", 1}, {"2", 2}, {"9", 2}, {"true", 1}, {"false", 0}, {"yes", 1}}) {
    EXPECT_EQ(Resolve({}, {{"OLLAMA_DEBUG", text}})->debug, level) << text;
  }
}

TEST(Options, BadValuesNameTheirSource) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"OLLAMA_KEEP_ALIVE", "soon"},     {"OLLAMA_MAX_QUEUE", "0"},
      {"OLLAMA_MAX_QUEUE", "1e3"},       {"OLLAMA_CONTEXT_LENGTH", "-1"},
      {"OLLAMA_MAX_LOADED_MODELS", "x"}, {"OLLAMA_LOAD_TIMEOUT", "5 minutes"},
      {"QUIRE_MAX_BODY", "0"},           {"QUIRE_MAX_BODY", "9999999GiB"},
      {"QUIRE_MAX_CONNECTIONS", "-3"},   {"QUIRE_DRAIN_TIMEOUT", "0"},
      {"QUIRE_ALLOW_REMOTE", "maybe"},   {"OLLAMA_HOST", "a b"},
      {"QUIRE_DRAIN_TIMEOUT", "-1s"},    {"OLLAMA_KV_CACHE_TYPE", "q3_0"},
  };
  for (const auto& [variable, text] : cases) {
    const auto options = Resolve({}, {{variable, text}});
    ASSERT_FALSE(options.has_value()) << variable << "=" << text;
    EXPECT_TRUE(options.error().message.starts_with(variable)) << options.error().message;
    EXPECT_EQ(options.error().field, variable);
  }
  const auto flag = Resolve({"--max-queue", "many"}, {{"OLLAMA_MAX_QUEUE", "9"}});
  ASSERT_FALSE(flag.has_value());
  EXPECT_TRUE(flag.error().message.starts_with("--max-queue")) << flag.error().message;
}

TEST(Options, PrefixesGoToDiskUnlessTheyMayNot) {
  const auto automatic = Resolve({}, {{"CACHE_DIRECTORY", "/var/cache/quire"}});
  EXPECT_TRUE(automatic->snapshot_bytes_auto);
  EXPECT_EQ(automatic->snapshot_dir, "/var/cache/quire/prefixes");
  EXPECT_EQ(Resolve({}, {{"XDG_CACHE_HOME", "/c"}})->snapshot_dir, "/c/quire/prefixes");
  EXPECT_EQ(Resolve({}, {{"HOME", "/home/a"}})->snapshot_dir.filename(), "prefixes");
  const auto sized = Resolve({"--snapshot-dir", "/d"}, {{"QUIRE_SNAPSHOT_BYTES", "20GiB"}});
  EXPECT_FALSE(sized->snapshot_bytes_auto);
  EXPECT_EQ(sized->snapshot_bytes, uint64_t{20} << 30);
  EXPECT_EQ(sized->snapshot_dir, "/d");
  for (const char* none : {"0", "off"}) {
    const auto off = Resolve({}, {{"QUIRE_SNAPSHOT_BYTES", none}});
    EXPECT_EQ(off->snapshot_bytes, 0u) << none;
    EXPECT_FALSE(off->snapshot_bytes_auto) << none;
  }
  EXPECT_FALSE(Resolve({}, {{"QUIRE_SNAPSHOT_BYTES", "much"}}).has_value());
}

}  // namespace
}  // namespace quire::server
