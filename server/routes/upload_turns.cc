#include "server/routes/upload_turns.h"

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "server/http/party.h"

namespace quire::server {
namespace {

constexpr size_t kGathered = size_t{1} << 20;
constexpr size_t kFewGathered = size_t{64} << 10;
constexpr size_t kPieceBytes = size_t{16} << 10;  // about as many come at once
constexpr int32_t kBodies = 16;
constexpr int32_t kBodiesOfOne = 8;
constexpr auto kTurnTime = std::chrono::milliseconds(50);

}  // namespace

size_t UploadTurns::ReserveGathered(Exchange& exchange) {
  return exchange.ReserveRequest(kGathered) ? kFewGathered : kGathered;
}

Awaitable<std::optional<std::string>> UploadTurns::Gather(Exchange& exchange, size_t bytes) {
  std::string gathered;
  // Grown piece by piece it would be copied, and its pages made, twice; the last piece may go beyond `bytes`.
  gathered.reserve(bytes + kPieceBytes);
  while (gathered.size() < bytes) {
    const auto piece = co_await Read(exchange);
    if (!piece) co_return std::nullopt;
    if (piece->empty()) break;
    gathered += *piece;
  }
  co_return gathered;
}

Awaitable<std::optional<std::string>> UploadTurns::Read(Exchange& exchange) {
  using scheduler::JobSlots;
  const auto executor = co_await boost::asio::this_coro::executor;
  if (!slots_) {
    slots_ = std::make_shared<JobSlots>(
        executor,
        JobSlots::Limits{.slots = kBodies, .slots_of_one = kBodiesOfOne, .waiting_max = JobSlots::kNoLimit});
  }
  auto acquired = co_await JobSlots::Acquire(slots_, PartyOf(exchange));
  if (!acquired) co_return std::nullopt;
  const auto slot = std::make_shared<std::optional<JobSlots::Slot>>(*std::move(acquired));
  boost::asio::steady_timer turn(executor, kTurnTime);
  turn.async_wait([slot](const boost::system::error_code&) { slot->reset(); });
  auto piece = co_await exchange.ReadBody();
  slot->reset();
  co_return piece;
}

}  // namespace quire::server
