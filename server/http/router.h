// Which handler serves a method and a path.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/access.h"
#include "server/http/awaitable.h"
#include "server/http/exchange.h"

namespace quire::server {

using Handler = std::function<Awaitable<void>(Exchange&)>;

inline constexpr std::string_view kJson = "application/json";
inline constexpr std::string_view kJsonOrLines = "application/json application/x-ndjson";
inline constexpr std::string_view kJsonOrEvents = "application/json text/event-stream";

// What clients read of a route in docs/openapi.json and docs/api.md, beside what its other members say
// (server/cli/api_docs.h). Texts are of static storage.
struct Operation {
  std::string_view tag = {};                      // the API that it is part of: "ollama"
  std::string_view summary = {};                  // "Stored models"
  std::string_view body = {};                     // its schema in server/routes/schemas.json; empty: none
  std::string_view reply = kJson;                 // media types, with blanks between; empty: no body
  std::vector<std::string_view> parameters = {};  // in server/routes/schemas.json
  int status = 200;                               // of the reply
};

struct Route {
  std::string method;
  std::string path;  // "/api/tags"; "/v1/models/{model}": any text, also with '/', in place of the braces
  Handler handler;
  // The handler may take long: it is canceled when the client goes away.
  bool cancel_on_disconnect = false;
  // Above 0: the handler reads the body itself, of at most this many bytes (Exchange::ReadBody). Not with
  // `cancel_on_disconnect`.
  uint64_t streamed_body_bytes = 0;
  // Above 0: a smaller bound of the body than that of all routes, in bytes. A larger body is 413.
  uint64_t body_bytes_max = 0;
  Access access = Access::kInference;
  Operation operation = {};  // set by Add()
};

struct RouteMatch {
  enum class Kind { kFound, kNotFound, kMethodNotAllowed, kRedirect };
  Kind kind = Kind::kNotFound;
  const Route* route = nullptr;  // kFound; lives as long as the router
  std::string allow = {};        // kMethodNotAllowed: "GET, HEAD, OPTIONS"
};

class Router {
 public:
  void Add(Route route, Operation operation) {
    route.operation = std::move(operation);
    routes_.push_back(std::move(route));
  }
  const std::vector<Route>& routes() const { return routes_; }

  // The route that was added first goes before others that match. HEAD is served by a route of its own, else
  // by the GET route. A known path with one more '/' is a redirect. OPTIONS without a route of its own is
  // kMethodNotAllowed with the list that answers it.
  RouteMatch Match(std::string_view method, std::string_view path) const;

 private:
  std::vector<Route> routes_;
};

}  // namespace quire::server
