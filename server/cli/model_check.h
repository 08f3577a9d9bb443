// Commands that look at a model before it is used: whether it is there, and whether it would load here.
#pragma once

#include <string>
#include <string_view>

#include "api/base/error.h"
#include "server/cli/client.h"

namespace quire::cli {

// Pulls the model if the daemon does not have it, with progress on standard error. The value is an exit code:
// 0 when the model is there. `insecure`: over HTTP if the registry does not support HTTPS.
int PullModel(Client& client, const std::string& model, bool insecure);
int PullIfMissing(Client& client, const std::string& model, bool insecure);

// quire doctor --models: a line for each model of the store. The value is 0 when all of them would load, else
// 1.
int CheckModels(Client& client);

// What the reply of /api/show to {"check": true} says, in lines without an end. kInternal: not such a reply.
api::Result<std::string> CheckText(std::string_view show_json);

// Whether the reply says that the model would load.
bool WouldLoad(std::string_view show_json);

}  // namespace quire::cli
