#include "server/routes/shared_list.h"

namespace quire::server {

std::shared_ptr<SharedBody> MakeSharedBody(SharedBody::Work encode) {
  return std::make_shared<SharedBody>(std::move(encode));
}

Awaitable<void> SendShared(Exchange& exchange, SharedBody& shared) {
  const auto body = co_await shared.Get();
  if (!*body) {
    co_await SendError(exchange, body->error());
    co_return;
  }
  HttpResponse response{.body = **body};
  co_await exchange.Send(std::move(response));
}

}  // namespace quire::server
