// A blocking client for the daemon's API. One request at a time; one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "api/base/error.h"

namespace quire::cli {

// A request's body. Bytes that are not UTF-8 are replaced.
std::string Dump(const nlohmann::ordered_json& body);

// The user's key for the daemon: QUIRE_API_KEY, or OLLAMA_API_KEY, which a set-up for Ollama has. Empty =
// none.
std::string_view ApiKey();

struct Endpoint {
  std::string host;
  uint16_t port = 0;
  bool https = false;
  std::string path = {};         // before the API's paths, "/quire"; empty: none
  std::string unix_socket = {};  // its path, in place of host and port
};

// Behind an error: the command that starts the daemon, or a question. Begins with ": ".
std::string HowToStart(const Endpoint& endpoint);

class Client {
 public:
  explicit Client(Endpoint endpoint) : endpoint_(std::move(endpoint)) {}

  std::string Url() const;  // "http://127.0.0.1:11434", with the endpoint's path, or "unix:///run/quire.sock"
  const Endpoint& endpoint() const { return endpoint_; }

  // The body of a 200 reply. Errors: kUnavailable "could not connect to ...", and the command that starts a
  // daemon; otherwise the server's own message, with the code that its status stands for. With
  // `interruptible`, SIGINT as in PostLines.
  api::Result<std::string> Get(std::string_view path, bool interruptible = false);

  // The same for a POST of JSON.
  api::Result<std::string> Post(std::string_view path, std::string body);
  api::Result<std::string> Delete(std::string_view path, std::string body);
  // Hands over the bytes of a 200 reply as they arrive; an error of `on_bytes` is the result. SIGINT as in
  // PostLines.
  api::Result<void> Download(std::string_view path,
                             const std::function<api::Result<void>(std::string_view bytes)>& on_bytes);
  // Whether a HEAD is answered 200; false for 404.
  api::Result<bool> Has(std::string_view path);
  // Posts a file's bytes, reports progress and gives the reply's body. SIGINT as in PostLines. kNotFound when
  // the file cannot be read.
  api::Result<std::string> PostFile(std::string_view path, const std::filesystem::path& file,
                                    const std::function<void(int64_t sent)>& on_sent);

  struct LineHandlers {
    // An error closes the connection and is the result.
    std::function<api::Result<void>(std::string_view line)> on_line;
    std::function<void()> on_tick = {};  // ten times a second until the end
  };
  // Posts JSON and hands over each line of the reply (without its newline) as it arrives. SIGINT while it
  // runs closes the connection and gives kCancelled; the process goes on.
  api::Result<void> PostLines(std::string_view path, std::string body, const LineHandlers& handlers);

 private:
  struct Call;
  api::Result<void> Exchange(Call& call);
  api::Result<std::string> ExchangeWhole(Call& call);

  Endpoint endpoint_;
};

}  // namespace quire::cli
