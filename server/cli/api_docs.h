// docs/openapi.json and the table of docs/api.md, written from the routes (server/http/router.h: Operation).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/http/router.h"

namespace quire::cli {

// The OpenAPI document: `schemas` (the text of server/routes/schemas.json), the routes as its paths, and the
// options of api/base/options.h as the properties of the schemas Options and OpenAiSampling.
std::string OpenApiOf(const std::vector<server::Route>& routes, const std::string& schemas);

// The page with a row for each route between its two comments. Nothing: it has no such comments.
std::optional<std::string> WithRouteTable(const std::string& page, const std::vector<server::Route>& routes);

}  // namespace quire::cli
