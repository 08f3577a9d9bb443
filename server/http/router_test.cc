#include "server/http/router.h"

#include <gtest/gtest.h>

namespace quire::server {
namespace {

using Kind = RouteMatch::Kind;

Router Routes() {
  Router router;
  router.Add({"GET", "/", {}}, {});
  router.Add({"GET", "/api/tags", {}}, {});
  router.Add({"POST", "/api/chat", {}}, {});
  router.Add({"GET", "/v1/models", {}}, {});
  router.Add({"GET", "/v1/models/{model}", {}}, {});
  return router;
}

TEST(Router, FindsRoutesAndServesHeadByGet) {
  const Router router = Routes();
  EXPECT_EQ(router.Match("GET", "/").kind, Kind::kFound);
  EXPECT_EQ(router.Match("HEAD", "/api/tags").kind, Kind::kFound);
  EXPECT_EQ(router.Match("GET", "/v1/models").route->path, "/v1/models");
  EXPECT_EQ(router.Match("GET", "/v1/models/a/b:c").route->path, "/v1/models/{model}");
}

TEST(Router, BracesStandForAnyText) {
  Router router;
  router.Add({"GET", "/files/{id}/text", {}}, {});
  router.Add({"GET", "/files/{id}", {}}, {});
  EXPECT_EQ(router.Match("GET", "/files/a/text").route->path, "/files/{id}/text");
  EXPECT_EQ(router.Match("GET", "/files/a").route->path, "/files/{id}");
  EXPECT_EQ(router.Match("GET", "/files/text").route->path, "/files/{id}");
  EXPECT_EQ(router.Match("GET", "/files/").kind, Kind::kNotFound);
}

TEST(Router, NamesTheMethodsOfAKnownPath) {
  const Router router = Routes();
  EXPECT_EQ(router.Match("DELETE", "/api/tags").allow, "GET, HEAD, OPTIONS");
  EXPECT_EQ(router.Match("GET", "/api/chat").allow, "POST, OPTIONS");
  EXPECT_EQ(router.Match("HEAD", "/api/chat").kind, Kind::kMethodNotAllowed);
  EXPECT_EQ(router.Match("OPTIONS", "/api/chat").kind, Kind::kMethodNotAllowed);
  EXPECT_EQ(router.Match("get", "/api/tags").kind, Kind::kMethodNotAllowed);
}

TEST(Router, RedirectsATrailingSlash) {
  const Router router = Routes();
  EXPECT_EQ(router.Match("GET", "/api/tags/").kind, Kind::kRedirect);
  EXPECT_EQ(router.Match("POST", "/api/chat/").kind, Kind::kRedirect);
  EXPECT_EQ(router.Match("GET", "/v1/models/").kind, Kind::kRedirect);
  EXPECT_EQ(router.Match("GET", "/v1/models/a/").kind, Kind::kRedirect);
  EXPECT_EQ(router.Match("GET", "/api/none/").kind, Kind::kNotFound);
  EXPECT_EQ(router.Match("GET", "//").kind, Kind::kRedirect);
  EXPECT_EQ(router.Match("GET", "/api/none").kind, Kind::kNotFound);
  EXPECT_EQ(router.Match("GET", "").kind, Kind::kNotFound);
}

}  // namespace
}  // namespace quire::server
