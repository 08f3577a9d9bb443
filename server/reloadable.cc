#include "server/reloadable.h"

#include <utility>

namespace quire::server {

api::Result<Reloadable> ReadReloadable(const std::function<api::Result<Options>()>& resolve) {
  auto options = resolve();
  if (!options) return std::unexpected(std::move(options).error());
  Reloadable settings{.options = *std::move(options), .tls = {}};
  const Options& read = settings.options;
  if (!read.tls_cert.empty() && !read.tls_key.empty()) {
    auto tls = TlsContext::Load(read.tls_cert, read.tls_key);
    if (!tls) return std::unexpected(std::move(tls).error());
    settings.tls = *std::move(tls);
  }
  return settings;
}

}  // namespace quire::server
