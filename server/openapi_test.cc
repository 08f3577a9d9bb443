// docs/openapi.json against the routes, the parsers and the option table: every difference fails here.
#include "server/routes/openapi.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "api/base/options.h"
#include "server/console/console.h"
#include "server/prefix_routes.h"
#include "server/routes/metrics_route.h"
#include "server/routes/node_route.h"
#include "server/routes/transfer.h"
#include "server/testing/test_daemon.h"

namespace quire::server {
namespace {

using nlohmann::json;
using testing::RawClient;
using testing::RawResponse;
using testing::TestDaemon;

const json& Document() {
  static const json document = json::parse(OpenApiDocument());
  return document;
}

struct Operation {
  std::string path;
  std::string method;  // "POST"
  json entry;
};

std::vector<Operation> Operations() {
  std::vector<Operation> operations;
  for (const auto& [path, methods] : Document().at("paths").items()) {
    for (const auto& [method, entry] : methods.items()) {
      std::string upper = method;
      std::ranges::transform(upper, upper.begin(), [](char c) { return static_cast<char>(c - 'a' + 'A'); });
      operations.push_back({path, upper, entry});
    }
  }
  return operations;
}

// Not in a daemon for tests: they are the whole daemon's, or reach a registry.
bool IsSent(const Operation& operation) {
  return operation.path != "/metrics" && !operation.path.starts_with("/ui") &&
         !operation.path.starts_with("/quire/") && operation.path != "/api/pull" &&
         operation.path != "/api/push" && !operation.path.starts_with("/api/blobs/");
}

// A schema's properties, with those of all that it refers to.
json PropertiesOf(const json& schema) {
  if (schema.contains("$ref")) {
    const auto name = schema["$ref"].get<std::string>();
    return PropertiesOf(Document().at("components").at("schemas").at(name.substr(name.rfind('/') + 1)));
  }
  json properties = schema.value("properties", json::object());
  const json parts = schema.value("allOf", json::array());
  for (const json& part : parts) properties.update(PropertiesOf(part));
  return properties;
}

json BodySchema(const Operation& operation) {
  return operation.entry["requestBody"]["content"]["application/json"]["schema"];
}
json Example(const Operation& operation) {
  return operation.entry["requestBody"]["content"]["application/json"]["example"];
}

// The path with its parameters' examples.
std::string TargetOf(const Operation& operation) {
  std::string target = operation.path;
  std::string query;
  const json parameters = operation.entry.value("parameters", json::array());
  for (const json& parameter : parameters) {
    const json& value = parameter["example"];
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    const auto name = parameter["name"].get<std::string>();
    if (parameter["in"] == "path") {
      target.replace(target.find("{" + name + "}"), name.size() + 2, text);
    } else {
      query += (query.empty() ? "?" : "&") + name + "=" + text;
    }
  }
  return target + query;
}

// The examples' model is the bundled one; the store for tests has another.
std::string WithTestModel(std::string text) {
  constexpr std::string_view kBundled = "quire-demo";
  for (size_t at = 0; (at = text.find(kBundled, at)) != std::string::npos;) {
    text.replace(at, kBundled.size(), "demo");
  }
  return text;
}

RawResponse Send(TestDaemon& daemon, const Operation& operation, const std::string& body) {
  RawClient client(daemon.port());
  std::string bytes = testing::PostBytes(WithTestModel(TargetOf(operation)), WithTestModel(body));
  bytes.replace(0, bytes.find(' '), operation.method);
  client.Send(bytes);
  return client.Read(operation.method == "HEAD");
}

void ScriptAnswer(TestDaemon& daemon) {
  api::Finished finished{.reason = api::FinishReason::kStop, .stop_string = {}, .usage = {2, 0, 1}};
  finished.context = {1, 2, 3};
  finished.embedding = {1};
  daemon.OnIoThread([&] {
    daemon.backend().script.events = {api::Event(api::PromptReady{2, 0}),
                                      api::Event(api::TextDelta{"hi", {}, 1}), api::Event(finished)};
  });
}

TEST(OpenApi, HasEveryRouteAndNoOther) {
  TestDaemon daemon;
  Router router;
  registry::Transfers transfers{registry::Settings{}, StoreTransfer(daemon.store().Open())};
  const Metrics metrics(false);
  AddRoutes(router, daemon.services());
  AddTransferRoutes(router, transfers);
  AddMetricsRoutes(router, metrics, [] { return MetricsSnapshot(); });
  AddNodeRoutes(router, daemon.services().models, [] { return MetricsSnapshot(); });
  AddConsoleRoutes(router);
  const RecentRequests recent;
  const NowSources now{.recent = recent};
  AddNowRoutes(router, now);
  const CacheSources cache;
  AddCacheRoutes(router, cache);
  const KeySources keys;
  AddKeyRoutes(router, keys);
  const PrefixSources prefixes;
  AddPrefixRoutes(router, prefixes);
  std::set<std::pair<std::string, std::string>> routes;
  for (const Route& route : router.routes()) routes.emplace(route.path, route.method);
  std::set<std::pair<std::string, std::string>> documented;
  for (const Operation& operation : Operations()) {
    documented.emplace(operation.path.substr(0, operation.path.find('{')), operation.method);
  }
  for (const auto& [path, method] : routes) {
    EXPECT_TRUE(documented.contains({path, method})) << "missing: " << method << " " << path;
  }
  for (const auto& [path, method] : documented) {
    EXPECT_TRUE(routes.contains({path, method})) << "no such route: " << method << " " << path;
  }
  EXPECT_EQ(daemon.Get("/openapi.json").body, OpenApiDocument());
}

template <class T>
json TypeOf(const T&) {
  if constexpr (std::is_same_v<T, std::optional<bool>>) return "boolean";
  if constexpr (std::is_same_v<T, std::optional<float>>) return "number";
  if constexpr (std::is_same_v<T, std::optional<std::vector<std::string>>>) return {"string", "array"};
  if constexpr (std::is_same_v<T, std::optional<std::vector<api::LogitBias>>>) return "object";
  if constexpr (std::is_same_v<T, std::optional<std::vector<api::TokenId>>>) return "array";
  return "integer";
}

TEST(OpenApi, OptionsAreThoseOfTheTable) {
  json in_options = json::object();
  json in_openai = json::object();
  const api::Options options;
  api::VisitOptions(
      [&](const api::OptionRow& row, const auto& option) {
        json property = {{"type", TypeOf(option)}, {"description", row.help}};
        if (row.min) property["minimum"] = *row.min;
        if (row.max) property["maximum"] = *row.max;
        if (row.in_options()) in_options[std::string(row.name)] = property;
        in_openai[std::string(row.name)] = property;
      },
      options);
  const json& schemas = Document().at("components").at("schemas");
  const auto expect_same = [](const json& table, const json& documented) {
    for (const auto& [name, property] : table.items()) {
      EXPECT_EQ(documented.value(name, json()), property) << "write \"" << name << "\": " << property;
    }
    for (const auto& [name, property] : documented.items()) EXPECT_TRUE(table.contains(name)) << name;
  };
  expect_same(in_options, schemas.at("Options").at("properties"));
  expect_same(in_openai, schemas.at("OpenAiSampling").at("properties"));
}

TEST(OpenApi, EveryExampleIsAnswered) {
  for (const Operation& operation : Operations()) {
    if (!IsSent(operation)) continue;
    TestDaemon daemon;
    ScriptAnswer(daemon);
    const bool has_body = operation.entry.contains("requestBody");
    const RawResponse response = Send(daemon, operation, has_body ? Example(operation).dump() : "");
    EXPECT_EQ(response.status, 200) << operation.method << " " << operation.path << ": " << response.body;
  }
}

// A value of a type that the property does not have.
json WrongValue(const json& property) {
  const json types = property.contains("$ref") ? json("object") : property.at("type");
  const auto has = [&types](const char* type) {
    return types == type || (types.is_array() && std::ranges::find(types, json(type)) != types.end());
  };
  if (!has("integer") && !has("number")) return 7;
  if (!has("string")) return "x";
  return json::array({json::array()});
}

TEST(OpenApi, EveryDocumentedFieldIsRead) {
  for (const Operation& operation : Operations()) {
    if (!IsSent(operation) || !operation.entry.contains("requestBody")) continue;
    TestDaemon daemon;
    ScriptAnswer(daemon);
    const json properties = PropertiesOf(BodySchema(operation));
    for (const auto& [name, property] : properties.items()) {
      json body = Example(operation);
      body[name] = WrongValue(property);
      const RawResponse response = Send(daemon, operation, body.dump());
      EXPECT_EQ(response.status, 400) << operation.path << " " << body << ": " << response.body;
      EXPECT_NE(response.body.find(name), std::string::npos)
          << operation.path << " " << name << ": " << response.body;
    }
  }
}

TEST(OpenApi, ReferencesLeadSomewhere) {
  const auto visit = [](const json& value, const auto& self) -> void {
    if (value.is_object() && value.contains("$ref")) {
      std::string pointer = value["$ref"].get<std::string>();
      EXPECT_TRUE(Document().contains(json::json_pointer(pointer.substr(1)))) << pointer;
    }
    if (value.is_structured()) {
      for (const json& member : value) self(member, self);
    }
  };
  visit(Document(), visit);
}

}  // namespace
}  // namespace quire::server
