// What the command line knows of hubs: the user's token, the user's cache of files, and a search.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "server/cli/arguments.h"
#include "server/cli/client.h"

namespace quire::cli {

// The request of a pull. For a hub's repository it has the user's token (HF_TOKEN, or the hub's token file)
// if the daemon is on this machine or reached by HTTPS, and the user's mirror (HF_ENDPOINT).
std::string PullBody(const Client& client, const std::string& model, bool insecure);

// Puts those files of a hub's repository into the daemon's store that the user's hub cache has
// (HF_HUB_CACHE), where both are of this user, so that the pull has not to fetch them. Says how on stderr.
// Nothing happens where the model is stored.
void BringCachedFiles(Client& client, const std::string& model);

// `quire search`: repositories of the hub that a word finds, those with GGUF files first.
int Search(const Arguments& arguments);

}  // namespace quire::cli
