#include "server/testing/test_daemon.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <boost/asio/post.hpp>
#include <future>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/base/io_thread.h"
#include "server/routes/error_response.h"
#include "server/routes/private_paths.h"
#include "server/routes/transfer.h"

namespace quire::server::testing {

namespace asio = boost::asio;

TestDaemon::TestDaemon(TransportLimits limits, const std::function<void(Router&)>& add_more) {
  const auto layers = nlohmann::json::array(
      {store_.Layer("application/vnd.ollama.image.model", "GGUF weights"),
       store_.Layer("application/vnd.ollama.image.params", R"({"temperature":0.5,"top_k":7})"),
       store_.Layer("application/vnd.ollama.image.system", "Be kind."),
       store_.Layer("application/vnd.ollama.image.messages", R"([{"role":"user","content":"earlier"}])")});
  WriteFile(store_.ManifestPath("demo"), store_.Manifest(layers).dump());

  backend_ = std::make_unique<FakeBackend>(io_.get_executor());
  models_ = std::make_unique<AsyncModelStore>(store_.Open(), pools_);
  inspector_ = std::make_unique<Inspector>(*backend_, io_.get_executor());
  services_.reset(
      new Services{*backend_, *models_, *inspector_, pools_, [this] { return server_->draining(); }});
  Transport transport{
      .limits = limits,
      .router = {},
      .origins = OriginPolicy({}, "box"),
      .error_response =
          [](const HttpRequest& request, int status, std::string message, std::string_view id) {
            return ErrorResponse(request.path, status, std::move(message), id);
          },
      .client_text =
          [paths = PrivatePaths(store_.root())](std::string_view message) { return paths.Hide(message); }};
  transfers_ = std::make_unique<registry::Transfers>(registry::Settings{}, StoreTransfer(models_->store()));
  AddRoutes(transport.router, *services_);
  AddTransferRoutes(transport.router, *services_, *transfers_);
  if (add_more) add_more(transport.router);
  server_ = std::make_unique<HttpServer>(io_.get_executor(), std::move(transport));
  const auto bound = server_->Listen({asio::ip::address_v4::loopback(), 0});
  EXPECT_TRUE(bound.has_value());
  port_ = bound->port();
  thread_ = std::thread([this] {
    const api::IoThreadMark io_thread;
    io_.run();
  });
}

TestDaemon::~TestDaemon() {
  OnIoThread([this] {
    server_->StopAccepting();
    server_->AbortAll();
    work_.reset();
  });
  thread_.join();
  pools_.executor.Join();
  EXPECT_EQ(server_->sessions(), 0u);
  EXPECT_EQ(api::BlockingCallsOnIoThread(), 0u);
}

void TestDaemon::OnIoThread(std::function<void()> action) {
  std::promise<void> done;
  asio::post(io_, [&] {
    action();
    done.set_value();
  });
  done.get_future().wait();
}

std::string PostBytes(const std::string& path, std::string_view body, const std::string& fields) {
  return fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n{}\r\n{}", path,
                     body.size(), fields, body);
}

RawResponse TestDaemon::Get(const std::string& path, const std::string& fields) {
  RawClient client(port_);
  client.Send(fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\n{}\r\n", path, fields));
  return client.Read();
}

RawResponse TestDaemon::Post(const std::string& path, std::string_view body, const std::string& fields) {
  RawClient client(port_);
  client.Send(PostBytes(path, body, fields));
  return client.Read();
}

}  // namespace quire::server::testing
