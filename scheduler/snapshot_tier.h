// Where runners keep prefix snapshots outside their process; implemented by the daemon.
#pragma once

#include <optional>
#include <string>

#include "api/base/file_descriptor.h"

namespace quire::scheduler {

class SnapshotTier {
 public:
  virtual ~SnapshotTier() = default;

  // A runner's ends of a new link (api/ipc/snapshot_link.h), which the runner inherits.
  struct Ends {
    api::FileDescriptor socket;
    api::FileDescriptor memory;
  };
  // `model`: its name, for lists. `identity`: all that its bytes depend on and a runner may not choose: files
  // and settings. Never blocks. I/O thread only. Nothing: the runner has no tier.
  virtual std::optional<Ends> Connect(const std::string& model, const std::string& identity) = 0;
};

}  // namespace quire::scheduler
