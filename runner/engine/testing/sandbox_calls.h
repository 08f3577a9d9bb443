// System calls that are made from inside a confined runner, with the result of each. docs/security.md lists
// every one (House.SecurityDoc).
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <vector>

namespace quire::runner::engine {

inline constexpr int kOk = 0;  // the call succeeds

// What the calls refer to: made before the process is confined.
struct CallArguments {
  pid_t victim = -1;  // another process of the same user
  pid_t self = -1;
  int log = -1;  // a file that is open for writing, like an inherited log
  int pipe = -1;
  int socket = -1;  // like the link to the daemon
  void* page = nullptr;
};

struct SandboxCall {
  const char* name;
  int loading;  // expected errno, 0 = the call succeeds
  int working;
  std::function<long(const CallArguments&)> call;
  std::optional<int> writing{};  // while a model is read and files are written; nothing: as while loading
};

std::vector<SandboxCall> AllSandboxCalls();

}  // namespace quire::runner::engine
