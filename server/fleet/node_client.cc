#include "server/fleet/node_client.h"

#include <fmt/format.h>
#include <openssl/ssl.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <utility>

namespace quire::server {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
namespace ssl = boost::asio::ssl;

constexpr auto kResult = asio::as_tuple(asio::use_awaitable);
constexpr size_t kReportBytesMax = size_t{8} << 20;

std::unexpected<api::Error> Unreachable(const FleetNode& node, const boost::system::error_code& error) {
  return api::Fail(api::ErrorCode::kUnavailable,
                   fmt::format("{} ({}:{}): {}", node.name, node.host, node.port, error.message()));
}

template <class Stream>
asio::awaitable<api::Result<NodeReport>> FetchReport(Stream& stream, const FleetNode& node,
                                                     const std::string& api_key) {
  http::request<http::empty_body> request(http::verb::get, "/quire/node", 11);
  request.set(http::field::host, fmt::format("{}:{}", node.host, node.port));
  request.set(http::field::user_agent, "quire/" QUIRE_VERSION);
  if (!api_key.empty()) request.set(http::field::authorization, "Bearer " + api_key);
  request.keep_alive(false);
  const auto [write_error, written] = co_await http::async_write(stream, request, kResult);
  if (write_error) co_return Unreachable(node, write_error);

  boost::beast::flat_buffer buffer;
  http::response_parser<http::string_body> parser;
  parser.body_limit(kReportBytesMax);
  const auto [read_error, size] = co_await http::async_read(stream, buffer, parser, kResult);
  if (read_error) co_return Unreachable(node, read_error);
  const unsigned status = parser.get().result_int();
  if (status != 200) {
    const auto code =
        status == 401 || status == 403 ? api::ErrorCode::kForbidden : api::ErrorCode::kUnavailable;
    co_return api::Fail(
        code, fmt::format("{} ({}:{}): HTTP {} for /quire/node", node.name, node.host, node.port, status));
  }
  co_return ParseNodeReport(parser.get().body());
}

using TlsStream = ssl::stream<boost::beast::tcp_stream&>;

asio::awaitable<api::Result<NodeReport>> FetchReportWithTls(boost::beast::tcp_stream& socket,
                                                            const FleetNode& node, const NodeAccess& access) {
  TlsStream stream(socket, *access.tls);
  stream.set_verify_mode(ssl::verify_peer);
  stream.set_verify_callback(ssl::host_name_verification(node.host));
  boost::system::error_code no_address;
  asio::ip::make_address(node.host, no_address);
  if (no_address) SSL_set_tlsext_host_name(stream.native_handle(), node.host.c_str());
  const auto [error] = co_await stream.async_handshake(ssl::stream_base::client, kResult);
  if (error) co_return Unreachable(node, error);
  co_return co_await FetchReport(stream, node, access.api_key);
}

}  // namespace

api::Result<std::shared_ptr<ssl::context>> NodeTls(const std::filesystem::path& ca_file) {
  auto context = std::make_shared<ssl::context>(ssl::context::tls_client);
  SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_2_VERSION);
  boost::system::error_code error;
  if (ca_file.empty()) {
    context->set_default_verify_paths(error);
  } else {
    context->load_verify_file(ca_file.string(), error);
  }
  if (error) {
    return api::Fail(api::ErrorCode::kInvalidArgument,
                     fmt::format("cannot read the certificates {}: {}", ca_file.string(), error.message()));
  }
  return context;
}

asio::awaitable<api::Result<NodeReport>> RequestReport(const FleetNode& node, const NodeAccess& access) {
  const auto executor = co_await asio::this_coro::executor;
  asio::ip::tcp::resolver resolver(executor);
  boost::beast::tcp_stream stream(executor);
  const auto [resolve_error, addresses] =
      co_await resolver.async_resolve(node.host, std::to_string(node.port), kResult);
  if (resolve_error) co_return Unreachable(node, resolve_error);
  stream.expires_after(access.timeout);
  const auto [connect_error, address] = co_await stream.async_connect(addresses, kResult);
  if (connect_error) co_return Unreachable(node, connect_error);
  if (node.tls) co_return co_await FetchReportWithTls(stream, node, access);
  co_return co_await FetchReport(stream, node, access.api_key);
}

}  // namespace quire::server
