#include "server/routes/progress_stream.h"

#include <utility>

#include "api/ollama/chat.h"
#include "api/ollama/store.h"
#include "server/routes/error_response.h"
#include "server/routes/relay.h"

namespace quire::server {
namespace {

namespace ollama = api::ollama;

}  // namespace

Awaitable<void> ProgressStream::Send(std::string body) {
  if (stream_) co_await exchange_.Stream(ollama::kNdjson, body + "\n");
}

Awaitable<void> ProgressStream::Succeed() {
  std::string body = ollama::StatusBody("success");
  if (!stream_) {
    HttpResponse response{.body = std::move(body)};
    co_await exchange_.Send(std::move(response));
    co_return;
  }
  co_await Send(std::move(body));
  co_await exchange_.EndStream();
}

Awaitable<void> ProgressStream::Fail(const api::Error& error) {
  if (!exchange_.started()) {
    co_await SendError(exchange_, error);
    co_return;
  }
  exchange_.log().error = api::Name(error.code);
  const api::Error shown{error.code, exchange_.ClientText(error.message), error.field};
  co_await exchange_.Stream(ollama::kNdjson, ollama::StreamError(shown));
  co_await exchange_.EndStream();
}

}  // namespace quire::server
