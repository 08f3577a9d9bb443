#include <algorithm>
#include <string>
#include <utility>

#include "server/console/assets.h"
#include "server/console/console.h"

namespace quire::server {
namespace {

// Scripts and styles come from this server, data go to it, pictures are part of texts, and nothing else is
// loaded or shown inside another page. Text becomes HTML in the page's own sanitizer only.
constexpr const char* kContentPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri "
    "'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types dompurify";

std::vector<HeaderField> FieldsOf(const Asset& asset) {
  return {{"Content-Security-Policy", kContentPolicy},
          {"Cache-Control", "no-cache"},
          {"ETag", std::string(asset.etag)},
          {"Vary", "Accept-Encoding"},
          {"X-Content-Type-Options", "nosniff"},
          {"Referrer-Policy", "no-referrer"},
          {"Cross-Origin-Opener-Policy", "same-origin"}};
}

Awaitable<void> SendAsset(Exchange& exchange) {
  const HttpRequest& request = exchange.request();
  const Asset* asset = FindAsset(request.path);
  if (asset == nullptr) {
    HttpResponse missing{.status = 404, .content_type = "text/plain; charset=utf-8", .body = "not found\n"};
    co_await exchange.Send(std::move(missing));
    co_return;
  }
  HttpResponse response{.content_type = std::string(asset->content_type), .headers = FieldsOf(*asset)};
  const std::string* known = request.Find("if-none-match");
  if (known != nullptr && known->find(asset->etag) != std::string::npos) {
    response.status = 304;
    response.content_type.clear();
  } else if (request.Accepts("accept-encoding", "gzip")) {
    response.headers.push_back({"Content-Encoding", "gzip"});
    response.body.assign(asset->gzip.begin(), asset->gzip.end());
  } else {
    response.body = Uncompressed(*asset);
  }
  co_await exchange.Send(std::move(response));
}

Awaitable<void> RedirectToFolder(Exchange& exchange) {
  HttpResponse response{.status = 302, .content_type = {}, .headers = {{"Location", "/ui/"}}};
  co_await exchange.Send(std::move(response));
}

}  // namespace

void AddConsoleRoutes(Router& router) {
  constexpr uint64_t kBodyBytesMax = 1024;  // nobody needs one
  const auto add = [&router](const char* path, Handler handler, Operation operation) {
    router.Add({.method = "GET",
                .path = path,
                .handler = std::move(handler),
                .body_bytes_max = kBodyBytesMax,
                .access = Access::kOpen},
               std::move(operation));
  };
  add("/ui", RedirectToFolder,
      {.tag = "console", .summary = "Redirects to the console", .reply = {}, .status = 302});
  add("/ui/", SendAsset, {"console", "The console: a page for browsers", /*body=*/{}, "text/html"});
  add("/ui/{file}", SendAsset,
      {.tag = "console",
       .summary = "A file of the console's page",
       .reply = "text/javascript text/css",
       .parameters = {"file"}});
}

}  // namespace quire::server
