// The Ollama dialect's requests about registries: /api/pull and /api/push. Same rules as ollama.h.
#pragma once

#include <string>
#include <string_view>

#include "api/base/error.h"

namespace quire::api::ollama {

struct TransferRequest {
  std::string model;
  std::string hub_token;     // of the client's user, for a hub; empty: the daemon's
  std::string hub_endpoint;  // a mirror of Hugging Face; empty: the daemon's
  bool insecure = false;
  bool stream = true;
};

Result<TransferRequest> ParseTransfer(std::string_view body);

}  // namespace quire::api::ollama
