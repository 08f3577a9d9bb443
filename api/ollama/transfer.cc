#include "api/ollama/transfer.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "api/json/body.h"

namespace quire::api::ollama {

Result<TransferRequest> ParseTransfer(std::string_view text) {
  const auto json = ReadBody(text);
  if (!json) return std::unexpected(json.error());
  FirstError error;
  Fields body(*json, "", error);
  TransferRequest request;
  request.model = GetModel(body, /*name_too=*/true);
  body.Get("hub_token", request.hub_token);
  body.Get("hub_endpoint", request.hub_endpoint);
  body.Get("insecure", request.insecure);
  body.Get("stream", request.stream);
  if (error) return std::unexpected(std::move(*error));
  return request;
}

}  // namespace quire::api::ollama
