// Cuts one HTTP/1.x request out of a byte stream. No I/O: the caller keeps the bytes and feeds them in any
// split.
//
// Stricter than a lenient parser where leniency lets two parties disagree about where a request ends: bare
// line feeds, folded fields, repeated or non-numeric Content-Length, Content-Length beside Transfer-Encoding,
// other codings than "chunked" and a missing or repeated Host of HTTP/1.1 are refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <memory>
#include <string>
#include <string_view>

#include "server/http/message.h"

namespace quire::server {

// Fields of a request: each takes more memory and time than its bytes on the wire.
inline constexpr size_t kFieldsMax = 128;

struct ParserLimits {
  size_t header_bytes = size_t{64} << 10;  // request line and fields
  uint64_t body_bytes = uint64_t{100} << 20;
};

// A request that cannot be served. The stream cannot be trusted past it: answer, then close.
struct ParseFailure {
  int status = 400;
  std::string reason;
};

class HttpParser {
 public:
  explicit HttpParser(ParserLimits limits);
  ~HttpParser();
  HttpParser(const HttpParser&) = delete;
  HttpParser& operator=(const HttpParser&) = delete;

  // Takes bytes from the front of `input` and returns how many; the rest must come again, with more behind
  // it, at the next call. Stops once when the header is complete, so that the caller may refuse before the
  // body or set its bound, and takes nothing more once the request is complete.
  std::expected<size_t, ParseFailure> Feed(std::string_view input);

  // Another bound for this request's body than the limits': 413 when the client announced more. REQUIRES:
  // header_done(), and no byte of the body was fed.
  std::expected<void, ParseFailure> AllowBody(uint64_t bytes);

  bool header_done() const { return header_done_; }
  bool done() const { return done_; }
  // Valid once the header is done; the body grows until done().
  HttpRequest& request() { return request_; }
  // Once the header is done: bytes of the body to come, as far as the client said.
  bool chunked() const { return chunked_; }
  uint64_t content_length() const { return content_length_; }
  uint64_t body_bytes() const;  // that have come, also those that the caller has taken out of the request

 private:
  class Impl;
  std::expected<size_t, ParseFailure> FeedHeader(std::string_view input);
  std::expected<size_t, ParseFailure> FeedBody(std::string_view input);
  std::expected<size_t, ParseFailure> FindHeaderEnd(std::string_view input);
  std::expected<void, ParseFailure> FinishHeader();
  std::expected<void, ParseFailure> SplitTarget();

  ParserLimits limits_;
  std::unique_ptr<Impl> impl_;
  HttpRequest request_;
  int empty_lines_ = 0;  // before the request line
  size_t scanned_ = 0;   // bytes of the header looked at so far
  bool header_done_ = false;
  bool done_ = false;
  bool chunked_ = false;
  uint64_t content_length_ = 0;
};

}  // namespace quire::server
