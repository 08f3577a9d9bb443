// A blocking HTTP/1.1 client for the daemon's API. One request at a time; one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "api/error.h"

namespace quire::cli {

struct Endpoint {
  std::string host;
  uint16_t port = 0;
};

class Client {
 public:
  explicit Client(Endpoint endpoint) : endpoint_(std::move(endpoint)) {}

  // The body of a 200 reply. Errors: kUnavailable "could not connect to ..., is it running?"; otherwise the
  // server's own message, with the code that its status stands for.
  api::Result<std::string> Get(std::string_view path);

  // Posts JSON and hands over each line of the reply (without its newline) as it arrives. SIGINT while it
  // runs closes the connection and gives kCancelled; the process goes on.
  api::Result<void> PostLines(std::string_view path, std::string body,
                              const std::function<void(std::string_view line)>& on_line);

 private:
  Endpoint endpoint_;
};

}  // namespace quire::cli
