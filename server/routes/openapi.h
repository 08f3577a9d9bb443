// The OpenAPI document of all routes: docs/openapi.json, which is part of the program.
#pragma once

#include <string_view>

namespace quire::server {

std::string_view OpenApiDocument();

}  // namespace quire::server
