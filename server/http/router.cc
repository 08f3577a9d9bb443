#include "server/http/router.h"

#include <algorithm>

namespace quire::server {
namespace {

bool Covers(const Route& route, std::string_view path) {
  const std::string_view pattern = route.path;
  const size_t begin = pattern.find('{');
  if (begin == std::string_view::npos) return pattern == path;
  const std::string_view before = pattern.substr(0, begin), after = pattern.substr(pattern.find('}') + 1);
  return path.size() > before.size() + after.size() && path.starts_with(before) && path.ends_with(after) &&
         !path.ends_with('/');
}

void AddMethod(std::string& list, std::string_view method) {
  if (!list.empty()) list += ", ";
  list += method;
}

}  // namespace

RouteMatch Router::Match(std::string_view method, std::string_view path) const {
  const std::string_view wanted = method == "HEAD" ? "GET" : method;
  RouteMatch match;
  for (const Route& route : routes_) {
    if (!Covers(route, path)) continue;
    if (route.method == method || route.method == wanted) return {RouteMatch::Kind::kFound, &route};
    match.kind = RouteMatch::Kind::kMethodNotAllowed;
    AddMethod(match.allow, route.method);
    if (route.method == "GET") AddMethod(match.allow, "HEAD");
  }
  if (match.kind == RouteMatch::Kind::kMethodNotAllowed) {
    AddMethod(match.allow, "OPTIONS");
    return match;
  }
  if (path.size() > 1 && path.ends_with('/')) {
    path.remove_suffix(1);
    if (std::ranges::any_of(routes_, [path](const Route& route) { return Covers(route, path); })) {
      match.kind = RouteMatch::Kind::kRedirect;
    }
  }
  return match;
}

}  // namespace quire::server
