// The commands of `quire` that are one request. Each value is an exit code; errors go to stderr.
#pragma once

#include "server/cli/arguments.h"
#include "server/cli/client.h"

namespace quire::cli {

int List(Client& client, const Arguments& arguments);
int Ps(Client& client);
int Ready(Client& client);  // prints nothing when it is
int Show(Client& client, const Arguments& arguments);
int Copy(Client& client, const Arguments& arguments);
int Remove(Client& client, const Arguments& arguments);
int Stop(Client& client, const Arguments& arguments);
// `push`: the other way.
int Push(Client& client, const Arguments& arguments);

}  // namespace quire::cli
