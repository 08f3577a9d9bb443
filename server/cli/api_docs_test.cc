#include "server/cli/api_docs.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "server/daemon.h"

namespace quire::cli {
namespace {

using nlohmann::json;
using server::Access;
using server::Route;

std::string ReadSource(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(OpenApi, DocumentsAreThoseOfTheRoutes) {
  constexpr const char* kRenew = ": other than the routes say; run build/release/bin/quire-docs --api .";
  const std::vector<Route> routes = server::DaemonRoutes();
  ASSERT_FALSE(routes.empty());
  const std::string page = ReadSource("docs/api.md");
  EXPECT_TRUE(WithRouteTable(page, routes) == page) << "docs/api.md" << kRenew;
  EXPECT_TRUE(OpenApiOf(routes, ReadSource("server/routes/schemas.json")) == ReadSource("docs/openapi.json"))
      << "docs/openapi.json" << kRenew;
  for (const Route& route : routes) {
    EXPECT_FALSE(route.operation.tag.empty()) << route.path;
    EXPECT_FALSE(route.operation.summary.empty()) << route.path;
  }
}

TEST(OpenApi, SaysWhatFollowsFromARoute) {
  server::Router router;
  router.Add({.method = "GET", .path = "/", .handler = {}, .access = Access::kOpen},
             {"health", "It runs", {}, "text/plain"});
  router.Add({.method = "GET", .path = "/ui/", .handler = {}}, {"console", "A page"});
  router.Add({.method = "POST", .path = "/v1/things/{id}", .handler = {}, .access = Access::kAdmin},
             {.tag = "openai", .summary = "A thing", .body = "Thing", .reply = {}, .parameters = {"id"}});
  router.Add({.method = "POST", .path = "/file", .handler = {}, .streamed_body_bytes = 1},
             {"console", "Take it"});
  const json document = json::parse(OpenApiOf(router.routes(), R"({"components":{"schemas":{}}})"));
  const json& paths = document.at("paths");
  const json error = {{"$ref", "#/components/responses/OllamaError"}};
  EXPECT_EQ(paths.at("/").at("get"),
            json({{"operationId", "getRoot"},
                  {"summary", "It runs"},
                  {"tags", {"health"}},
                  {"responses",
                   {{"200", {{"description", "Success"}, {"content", {{"text/plain", json::object()}}}}},
                    {"default", error}}},
                  {"security", json::array()}}));
  EXPECT_EQ(paths.at("/ui/").at("get").at("operationId"), "getUiIndex");
  const json& thing = paths.at("/v1/things/{id}").at("post");
  EXPECT_EQ(thing.at("operationId"), "postV1ThingsId");
  EXPECT_EQ(thing.at("summary"), "A thing (admin)");
  EXPECT_EQ(thing.at("parameters"), json::array({{{"$ref", "#/components/parameters/id"}}}));
  EXPECT_EQ(thing.at("requestBody").at("content").at("application/json").at("schema").at("$ref"),
            "#/components/schemas/Thing");
  for (const char* status : {"400", "401", "403", "413", "default"})
    EXPECT_EQ(thing.at("responses").at(status).at("$ref"), "#/components/responses/OpenAiError") << status;
  EXPECT_FALSE(thing.at("responses").at("200").contains("content"));
  EXPECT_TRUE(
      paths.at("/file").at("post").at("requestBody").at("content").contains("application/octet-stream"));
}

TEST(OpenApi, OnlyTheTableOfAPageIsWritten) {
  server::Router router;
  router.Add({.method = "GET", .path = "/a", .handler = {}}, {"ollama", "An \"a\""});
  const std::string head = "# API\n<!-- Written by quire-docs --api . -->\n";
  EXPECT_EQ(WithRouteTable(head + "old\n<!-- -->\nrest\n", router.routes()),
            head + "|method|path|what|\n|---|---|---|\n|GET|`/a`|An \"a\"|\n<!-- -->\nrest\n");
  EXPECT_FALSE(WithRouteTable("# API\n", router.routes()));
}

}  // namespace
}  // namespace quire::cli
