// docs/openapi.json against the parsers: every difference fails here.
#include "server/routes/openapi.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

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

struct Documented {
  std::string path;
  std::string method;  // "POST"
  json entry;
};

std::vector<Documented> Operations() {
  std::vector<Documented> operations;
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
bool IsSent(const Documented& operation) {
  return operation.path != "/metrics" && !operation.path.starts_with("/ui") &&
         !operation.path.starts_with("/quire/") && operation.path != "/api/pull" &&
         operation.path != "/api/push" && !operation.path.starts_with("/api/blobs/");
}

const json& Referenced(const json& value) {
  return Document().at(json::json_pointer(value.at("$ref").get<std::string>().substr(1)));
}

// A schema's properties, with those of all that it refers to.
json PropertiesOf(const json& schema) {
  if (schema.contains("$ref")) return PropertiesOf(Referenced(schema));
  json properties = schema.value("properties", json::object());
  const json parts = schema.value("allOf", json::array());
  for (const json& part : parts) properties.update(PropertiesOf(part));
  return properties;
}

json BodySchema(const Documented& operation) {
  return operation.entry["requestBody"]["content"]["application/json"]["schema"];
}
// Bodies; a text without one for an operation that reads none.
std::vector<std::string> ExamplesOf(const Documented& operation) {
  if (!operation.entry.contains("requestBody")) return {""};
  std::vector<std::string> examples;
  for (const json& example : Referenced(BodySchema(operation)).at("examples")) {
    examples.push_back(example.dump());
  }
  return examples;
}

// The path with its parameters' examples.
std::string TargetOf(const Documented& operation) {
  std::string target = operation.path;
  std::string query;
  const json parameters = operation.entry.value("parameters", json::array());
  for (const json& reference : parameters) {
    const json& parameter = Referenced(reference);
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

RawResponse Send(TestDaemon& daemon, const Documented& operation, const std::string& body) {
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

TEST(OpenApi, IsServed) {
  std::ifstream file("docs/openapi.json");
  const std::string document{std::istreambuf_iterator<char>(file), {}};
  TestDaemon daemon;
  EXPECT_TRUE(daemon.Get("/openapi.json").body == document);
}

TEST(OpenApi, EveryExampleIsAnswered) {
  for (const Documented& operation : Operations()) {
    if (!IsSent(operation)) continue;
    for (const std::string& example : ExamplesOf(operation)) {
      TestDaemon daemon;
      ScriptAnswer(daemon);
      const RawResponse response = Send(daemon, operation, example);
      EXPECT_EQ(response.status, 200) << operation.method << " " << operation.path << ": " << response.body;
    }
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
  for (const Documented& operation : Operations()) {
    if (!IsSent(operation) || !operation.entry.contains("requestBody")) continue;
    TestDaemon daemon;
    ScriptAnswer(daemon);
    const json properties = PropertiesOf(BodySchema(operation));
    for (const auto& [name, property] : properties.items()) {
      json body = json::parse(ExamplesOf(operation).front());
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
