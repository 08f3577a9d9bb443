#include <utility>

#include "api/tokenize.h"
#include "server/handlers.h"
#include "server/request_steps.h"

namespace quire::server {
namespace {

class TokenizeReply : public Reply {
 public:
  explicit TokenizeReply(api::TokenizeEncoder::Shape shape) : encoder_(shape) {}
  bool streams() const override { return false; }
  std::string_view stream_type() const override { return {}; }
  std::string_view keep_alive() const override { return {}; }
  std::string OnEvent(const api::Event& event, const Moment&) override { return encoder_.OnEvent(event); }

 private:
  api::TokenizeEncoder encoder_;
};

api::TokenizeEncoder::Shape ShapeOf(const api::TokenizeRequest& request) {
  using Shape = api::TokenizeEncoder::Shape;
  return request.with_pieces ? Shape::kPieces : Shape::kIds;
}
api::TokenizeEncoder::Shape ShapeOf(const api::DetokenizeRequest&) {
  return api::TokenizeEncoder::Shape::kText;
}

// The model that is named, else the only one that is loaded. Nothing: the request was answered with the
// error.
Awaitable<std::optional<scheduler::ModelSpec>> FindSpec(Services& services, Exchange& exchange,
                                                        const std::string& name) {
  if (!name.empty()) {
    const auto model = co_await FindModel(services, exchange, name);
    if (!model) co_return std::nullopt;
    co_return SpecOf(*model);
  }
  auto loaded = services.backend.Loaded();
  if (loaded.size() == 1) co_return std::move(loaded.front().spec);
  const api::Error error{api::ErrorCode::kInvalidArgument,
                         "model is required unless exactly one model is loaded", "model"};
  co_await SendError(exchange, error);
  co_return std::nullopt;
}

template <class Parsed>
Awaitable<void> Convert(Services& services, Exchange& exchange,
                        api::Result<Parsed> (*parse)(std::string_view)) {
  auto parsed = co_await ParseBody(services, exchange, parse);
  if (!parsed) co_return;
  exchange.log().model = parsed->model;
  auto spec = co_await FindSpec(services, exchange, parsed->model);
  if (!spec) co_return;
  TokenizeReply reply(ShapeOf(*parsed));
  Job job{*std::move(spec), api::ToRequest(*std::move(parsed)), std::nullopt};
  co_await Relay(exchange, services.backend, std::move(job), reply);
}

}  // namespace

void AddTokenizeRoutes(Router& router, Services& services) {
  const auto tokenize = [&services](Exchange& exchange) {
    return Convert(services, exchange, api::ParseTokenize);
  };
  const auto detokenize = [&services](Exchange& exchange) {
    return Convert(services, exchange, api::ParseDetokenize);
  };
  router.Add({"POST", "/tokenize", tokenize, true});
  router.Add({"POST", "/detokenize", detokenize, true});
}

}  // namespace quire::server
