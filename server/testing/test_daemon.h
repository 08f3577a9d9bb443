// All routes on a real server over a scripted scheduler and a store in a temporary directory, for tests.
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "server/http/server.h"
#include "server/registry/transfer.h"
#include "server/routes/handlers.h"
#include "server/testing/fake_backend.h"
#include "server/testing/raw_client.h"
#include "server/testing/store_fixture.h"

namespace quire::server::testing {

class TestDaemon {
 public:
  // The store holds "demo": parameters temperature 0.5 and top_k 7, system "Be kind.", one MESSAGE.
  // `add_more` adds further routes.
  explicit TestDaemon(TransportLimits limits = {}, const std::function<void(Router&)>& add_more = {});
  ~TestDaemon();

  FakeBackend& backend() { return *backend_; }
  HttpServer& server() { return *server_; }
  Services& services() { return *services_; }
  uint16_t port() const { return port_; }
  StoreFixture& store() { return store_; }
  WorkPools& pools() { return pools_; }
  void OnIoThread(std::function<void()> action);

  // One request over a connection of its own.
  RawResponse Get(const std::string& path, const std::string& fields = "");
  RawResponse Post(const std::string& path, std::string_view body, const std::string& fields = "");

 private:
  StoreFixture store_;
  WorkPools pools_;
  boost::asio::io_context io_{1};
  // Keeps the I/O thread when listeners and sessions are gone, until the destructor lets it end.
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{io_.get_executor()};
  std::unique_ptr<FakeBackend> backend_;
  std::unique_ptr<AsyncModelStore> models_;
  std::unique_ptr<Inspector> inspector_;
  std::unique_ptr<Services> services_;
  std::unique_ptr<registry::Transfers> transfers_;
  std::unique_ptr<HttpServer> server_;
  uint16_t port_ = 0;
  std::thread thread_;
};

// "POST path ..." with its body, as bytes.
std::string PostBytes(const std::string& path, std::string_view body, const std::string& fields = "");

}  // namespace quire::server::testing
