// The defaults that a stored model adds to requests, and how both become one prompt.
#pragma once

#include <string>
#include <vector>

#include "api/base/request.h"

namespace quire::api {

struct ModelDefaults {
  Options options;                     // PARAMETER
  std::string system;                  // SYSTEM
  std::vector<Message> messages = {};  // MESSAGE
};

// The options of a request: its own, else the model's PARAMETERs, else the files' (which its runner adds),
// else `dialect`.
void SetOptions(const Options& dialect, const Options& parameters, const Options& own, Request& request);

// The model's messages, then `messages`; the model's system text goes first unless `messages` starts with a
// system message of its own.
std::vector<Message> WithDefaults(std::vector<Message> messages, const ModelDefaults& defaults);

}  // namespace quire::api
