#include "server/testing/fake_backend.h"

#include <boost/asio/this_coro.hpp>
#include <boost/system/system_error.hpp>
#include <new>
#include <utility>

#include "server/http/awaitable.h"
#include "server/testing/store_fixture.h"

namespace quire::server::testing {
namespace {

namespace asio = boost::asio;

// If several are blocked, the first one counts.
void SetOnce(std::promise<void>& promise) {
  try {
    promise.set_value();
  } catch (const std::future_error&) {
  }
}

class FinishedConversion : public scheduler::ConversionJob {
 public:
  Awaitable<api::Result<std::optional<float>>> Next() override { co_return std::nullopt; }
};

}  // namespace

// Stands for work in progress: destroyed before it was let go, the work was abandoned.
class FakeBackend::Presence {
 public:
  explicit Presence(FakeBackend& backend) : backend_(backend) {}
  ~Presence() {
    if (!released) SetOnce(backend_.abandoned);
  }
  bool released = false;

 private:
  FakeBackend& backend_;
};

class FakeBackend::FakeTokenStream : public scheduler::TokenStream {
 public:
  explicit FakeTokenStream(FakeBackend& backend)
      : backend_(backend),
        steps_(backend.script.events),
        out_of_memory_(backend.script.out_of_memory == backend.seen.requests.size() - 1) {
    if (backend.script.displaced.contains(backend.seen.requests.size() - 1))
      steps_ = {api::Event(api::Failed{{api::ErrorCode::kOverloaded, backend.script.displaced_text}})};
  }
  ~FakeTokenStream() override {
    if (blocked_ && !ended_) SetOnce(backend_.abandoned);
  }

  Awaitable<api::Event> Next() override {
    if (out_of_memory_) throw std::bad_alloc();
    while (std::holds_alternative<Block>(steps_.at(next_))) {
      ++next_;
      blocked_ = true;
      co_await backend_.WaitReleased();
    }
    const Step& step = steps_[next_++];
    ended_ = next_ == steps_.size();
    co_return std::get<api::Event>(step);
  }
  std::chrono::nanoseconds load_duration() const override { return std::chrono::milliseconds(3); }
  int runner_pid() const override { return 4711; }

 private:
  FakeBackend& backend_;
  std::vector<Step> steps_;
  bool out_of_memory_;
  size_t next_ = 0;
  bool blocked_ = false;
  bool ended_ = false;
};

FakeBackend::FakeBackend(const asio::any_io_executor& executor)
    : executor_(executor), blocked_(executor, std::chrono::steady_clock::time_point::max()) {}

Awaitable<void> FakeBackend::WaitReleased() {
  SetOnce(blocked);
  co_await blocked_.async_wait(kTuple);
  const auto state = co_await asio::this_coro::cancellation_state;
  if (state.cancelled() != asio::cancellation_type::none) {
    throw boost::system::system_error(asio::error::operation_aborted);
  }
}

Awaitable<api::Result<std::unique_ptr<scheduler::TokenStream>>> FakeBackend::Submit(
    scheduler::ModelSpec spec, api::Request request, std::optional<scheduler::KeepAliveClaim> keep_alive) {
  seen.submitted.push_back(std::move(spec));
  seen.requests.push_back(std::move(request));
  seen.Add(keep_alive);
  if (script.block_submit) {
    Presence presence(*this);
    co_await WaitReleased();
    presence.released = true;
  }
  if (script.submit_error) co_return std::unexpected(*script.submit_error);
  co_return std::make_unique<FakeTokenStream>(*this);
}

Awaitable<api::Result<std::chrono::nanoseconds>> FakeBackend::Load(
    scheduler::ModelSpec, std::optional<scheduler::KeepAliveClaim> keep_alive, fair::PartyId) {
  ++seen.loads;
  seen.Add(keep_alive);
  if (script.block_submit) {
    Presence presence(*this);
    co_await WaitReleased();
    presence.released = true;
  }
  if (script.submit_error) co_return std::unexpected(*script.submit_error);
  co_return std::chrono::milliseconds(3);
}

Awaitable<api::Result<api::ipc::Inspected>> FakeBackend::Inspect(api::ipc::InspectModel request,
                                                                 fair::PartyId) {
  if (request.check_load) {
    seen.load_checks.push_back(std::move(request));
    if (script.load_error) co_return std::unexpected(*script.load_error);
    co_return script.inspected;
  }
  seen.inspections.push_back(request.verbose);
  co_return script.inspected;
}

Awaitable<api::Result<std::unique_ptr<scheduler::ConversionJob>>> FakeBackend::Convert(
    api::ipc::ConvertModel request, std::shared_ptr<const void>, fair::PartyId) {
  if (!script.converted) co_return api::Fail(api::ErrorCode::kUnavailable, "no conversion in this test");
  WriteFile(request.to, *script.converted);
  co_return std::make_unique<FinishedConversion>();
}

}  // namespace quire::server::testing
