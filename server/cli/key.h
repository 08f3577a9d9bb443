// quire key: makes or removes an API key. Talks to no daemon.
#pragma once

#include <string>

#include "server/http/api_keys.h"

namespace quire::cli {

struct KeyOptions {
  std::string name;
  bool admin = false;
  server::KeyLimits limits;
  std::string file;         // empty: the line is printed
  std::string remove_from;  // not empty: the key is removed from this key file
};

// Makes the key, or removes it. The value is the exit code.
int ChangeKeys(const KeyOptions& options);

// Prints the secret, which is kept nowhere, and the line that the daemon needs. The value is the exit code.
int MakeKey(const KeyOptions& options);

}  // namespace quire::cli
