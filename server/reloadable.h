// What a reload takes from files.
#pragma once

#include <functional>
#include <optional>

#include "api/base/error.h"
#include "server/http/tls.h"
#include "server/options.h"

namespace quire::server {

struct Reloadable {
  Options options;
  std::optional<TlsContext> tls;
};

// Blocks. `resolve`: reads all settings. Errors: as of `resolve`, or a certificate that cannot be used.
api::Result<Reloadable> ReadReloadable(const std::function<api::Result<Options>()>& resolve);

}  // namespace quire::server
