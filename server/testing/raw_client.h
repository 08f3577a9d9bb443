// A blocking socket that sends raw bytes and reads HTTP answers, for tests. One thread may send while another
// one reads.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace quire::server::testing {

struct RawResponse {
  int status = 0;  // 0: the connection ended instead
  std::string version;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  bool chunked = false;
  bool whole = false;  // the body came to its proper end
};

class RawClient {
 public:
  // `source`: the address that it has.
  explicit RawClient(uint16_t port, const char* source = "127.0.0.1");
  ~RawClient();
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  void Send(std::string_view bytes);
  // As Send(), but false instead of a test failure when the peer does not take it.
  bool TrySend(std::string_view bytes);
  // The next answer; `head`: it has no body, whatever its fields say.
  RawResponse Read(bool head = false);
  // Everything up to the end of the connection.
  std::string ReadToEnd();
  // True when the peer has closed and nothing is left to read.
  bool AtEnd();
  // Whether anything has come that was not read.
  bool HasInput() const;
  // At least `bytes` more of the stream, raw.
  std::string ReadSome(size_t bytes);

  void FinishSending();
  void Close();  // FIN
  void Reset();  // RST

 private:
  bool Fill();
  std::string Line();

  int fd_ = -1;
  std::string buffer_;
};

}  // namespace quire::server::testing
