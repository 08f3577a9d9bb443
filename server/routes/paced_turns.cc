#include "server/routes/paced_turns.h"

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <cstdint>
#include <utility>

namespace quire::server {
namespace {

constexpr int kPausesPerWork = 4;

}  // namespace

PacedTurns::PacedTurns(const boost::asio::any_io_executor& executor)
    : slots_(std::make_shared<scheduler::JobSlots>(
          executor, scheduler::JobSlots::Limits{
                        .slots = 1, .slots_of_one = 1, .waiting_max = scheduler::JobSlots::kNoLimit})) {}

Awaitable<api::Result<std::string>> PacedTurns::Run(std::string party, Work work) {
  const auto slot = co_await scheduler::JobSlots::Acquire(slots_, std::move(party));
  if (!slot) co_return std::unexpected(slot.error());
  // Also where no pause is left: what is ready by now goes first.
  boost::asio::steady_timer pause(co_await boost::asio::this_coro::executor, next_at_);
  co_await pause.async_wait(kTuple);
  const auto begin = Clock::now();
  std::string done = work();
  const auto end = Clock::now();
  next_at_ = end + kPausesPerWork * (end - begin);
  co_return done;
}

}  // namespace quire::server
