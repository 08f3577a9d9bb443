// Blobs from elsewhere into the store: several at a time, each resumed where an earlier try stopped, and
// checked.
#pragma once

#include <expected>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "server/registry/session.h"
#include "server/registry/transfer.h"
#include "server/store/files.h"
#include "server/store/model_store.h"

namespace quire::server::registry {

struct BlobSource {
  Layer layer;
  std::string url;
  std::string name;  // in messages: "1c3a4f5b6d7e", or a file's
};

// Blocks. Each transfer thread has a session of its own. The first error; that the store has no room goes
// before others. The caller holds leases of the blobs.
StoreResult<void> PullBlobs(const TransferJob& job, const std::vector<BlobSource>& blobs,
                            const std::function<std::unique_ptr<Session>()>& new_session);

std::vector<std::string> NamesOf(const std::vector<BlobSource>& sources);
// What a registry's reply with this status is.
std::unexpected<api::Error> Refused(const std::string& host, std::string_view what, int status);

}  // namespace quire::server::registry
