#include "server/fleet/node_client.h"

#include <fmt/format.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ip/tcp.hpp>
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

constexpr auto kResult = asio::as_tuple(asio::use_awaitable);
constexpr size_t kReportBytesMax = size_t{8} << 20;

std::unexpected<api::Error> Unreachable(const FleetNode& node, const boost::system::error_code& error) {
  return api::Fail(api::ErrorCode::kUnavailable,
                   fmt::format("{} ({}:{}): {}", node.name, node.host, node.port, error.message()));
}

}  // namespace

asio::awaitable<api::Result<NodeReport>> RequestReport(const FleetNode& node, const std::string& api_key,
                                                       std::chrono::milliseconds timeout) {
  const auto executor = co_await asio::this_coro::executor;
  asio::ip::tcp::resolver resolver(executor);
  boost::beast::tcp_stream stream(executor);
  const auto [resolve_error, addresses] =
      co_await resolver.async_resolve(node.host, std::to_string(node.port), kResult);
  if (resolve_error) co_return Unreachable(node, resolve_error);
  stream.expires_after(timeout);
  const auto [connect_error, address] = co_await stream.async_connect(addresses, kResult);
  if (connect_error) co_return Unreachable(node, connect_error);

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

}  // namespace quire::server
