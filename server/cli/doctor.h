// quire doctor: diagnoses startup problems without a daemon.
#pragma once

#include <string>

#include "api/base/error.h"
#include "server/cli/client.h"
#include "server/options.h"

namespace quire::cli {

struct DoctorOptions {
  bool models = false;  // of the store; nothing else is looked at
  std::string user;     // empty: quire, where its package is installed, else who asks
};

// Whether the package's service is set up on this machine: the store is its own.
bool IsService();

// Prints one line per thing looked at. The value is 0 when nothing is wrong, else 1.
int Doctor(const DoctorOptions& options, const api::Result<Endpoint>& endpoint);

}  // namespace quire::cli
