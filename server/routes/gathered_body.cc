#include "server/routes/gathered_body.h"

namespace quire::server {
namespace {

constexpr size_t kGathered = size_t{1} << 20;
constexpr size_t kFewGathered = size_t{64} << 10;
constexpr size_t kPieceBytes = size_t{16} << 10;  // about as many come at once

}  // namespace

size_t ReserveGathered(Exchange& exchange) {
  return exchange.ReserveRequest(kGathered) ? kFewGathered : kGathered;
}

Awaitable<std::optional<std::string>> Gather(Exchange& exchange, size_t bytes) {
  std::string gathered;
  // Grown piece by piece it would be copied, and its pages made, twice; the last piece may go beyond `bytes`.
  gathered.reserve(bytes + kPieceBytes);
  while (gathered.size() < bytes) {
    const auto piece = co_await exchange.ReadBody();
    if (!piece) co_return std::nullopt;
    if (piece->empty()) break;
    gathered += *piece;
  }
  co_return gathered;
}

}  // namespace quire::server
