// A daemon for one command, where none runs: what a store has can be checked without a service.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <memory>
#include <string>

#include "api/base/error.h"
#include "server/cli/client.h"

namespace quire::cli {

// A child process with the settings of this shell, on a loopback port of its own. It ends with this object,
// and with this process.
class OwnDaemon {
 public:
  // kUnavailable: the kernel gives no socket or process. A daemon that refuses to start shows in its first
  // answer.
  static api::Result<std::unique_ptr<OwnDaemon>> Start();
  ~OwnDaemon();
  OwnDaemon(const OwnDaemon&) = delete;
  OwnDaemon& operator=(const OwnDaemon&) = delete;

  const Endpoint& endpoint() const { return endpoint_; }
  // The last line of its log, for an error; stops it.
  std::string StopAndTellWhy();

 private:
  OwnDaemon(pid_t pid, Endpoint endpoint, std::FILE* log);
  void Stop();

  pid_t pid_;  // 0: it has been stopped
  Endpoint endpoint_;
  std::FILE* log_;  // an unnamed file
};

// Whether a daemon of this user can take the place of the one that `endpoint` names: nothing answers there,
// it is on this machine, and no packaged service owns the store.
bool MayStartOwnDaemon(const Endpoint& endpoint);

}  // namespace quire::cli
