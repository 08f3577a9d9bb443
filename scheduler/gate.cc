#include "scheduler/gate.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <utility>

namespace quire::scheduler {
namespace {

using boost::asio::awaitable;

awaitable<void> Later(boost::asio::any_io_executor executor, awaitable<void> work) {
  co_await boost::asio::post(executor, boost::asio::use_awaitable);
  co_await std::move(work);
}

awaitable<void> UntilEmpty(std::shared_ptr<AsyncEvent> changed, std::shared_ptr<int> inside) {
  while (*inside > 0) {
    const bool waited = co_await changed->Wait();
    if (!waited) co_return;
  }
}

}  // namespace

struct Gate::Count {
  explicit Count(boost::asio::any_io_executor executor) : changed(std::move(executor)) {}
  AsyncEvent changed;
  int inside = 0;
};

class Gate::Pass {
 public:
  explicit Pass(std::shared_ptr<Count> count) : count_(std::move(count)) { ++count_->inside; }
  ~Pass() {
    if (!count_) return;
    --count_->inside;
    count_->changed.Notify();
  }
  Pass(Pass&&) noexcept = default;
  Pass& operator=(Pass&&) = delete;

 private:
  std::shared_ptr<Count> count_;
};

Gate::Gate(boost::asio::any_io_executor executor)
    : executor_(std::move(executor)), count_(std::make_shared<Count>(executor_)) {}

void Gate::Start(awaitable<void> work) {
  boost::asio::co_spawn(executor_, Later(executor_, std::move(work)),
                        [pass = Pass(count_)](const std::exception_ptr& error) noexcept {
                          if (error) std::rethrow_exception(error);
                        });
}

int Gate::inside() const { return count_->inside; }

awaitable<void> Gate::Empty() {
  return UntilEmpty(std::shared_ptr<AsyncEvent>(count_, &count_->changed),
                    std::shared_ptr<int>(count_, &count_->inside));
}

}  // namespace quire::scheduler
