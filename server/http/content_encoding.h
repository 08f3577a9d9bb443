// Compressed bodies: those of requests (gzip, zstd) are decoded in steps within a bound, those of replies are
// encoded as gzip piece by piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <memory>
#include <string>
#include <string_view>

#include "server/http/message.h"
#include "server/http/parser.h"

namespace quire::server {

enum class ContentEncoding : uint8_t { kIdentity, kGzip, kZstd };

// How the request's body is encoded; 415 for any other encoding and for several of them.
std::expected<ContentEncoding, ParseFailure> ContentEncodingOf(const HttpRequest& request);

// Decodes one body. Several gzip members, or zstd frames, one after the other are one body.
class BodyDecoder {
 public:
  // `body` outlives the decoder. At most `bytes_max` bytes come out of it. REQUIRES: not kIdentity.
  BodyDecoder(ContentEncoding encoding, std::string_view body, uint64_t bytes_max);
  ~BodyDecoder();
  BodyDecoder(const BodyDecoder&) = delete;
  BodyDecoder& operator=(const BodyDecoder&) = delete;

  // Decodes at most `bytes` more; true at the end. 413: more than `bytes_max`; 400: broken or cut off.
  std::expected<bool, ParseFailure> Step(size_t bytes);
  size_t decoded_bytes() const { return out_.size(); }
  std::string MoveDecoded() { return std::move(out_); }

  class Stream;

 private:
  std::unique_ptr<Stream> stream_;
  std::string_view left_;
  uint64_t bytes_max_;
  bool unfinished_ = false;  // a member or frame has begun and not ended
  std::string out_;
};

// Encodes one body as gzip, at little cost. Its own memory is some 270 KiB.
class GzipEncoder {
 public:
  static constexpr uint64_t kBytes = uint64_t{272} << 10;  // that it takes

  GzipEncoder();
  ~GzipEncoder();
  GzipEncoder(const GzipEncoder&) = delete;
  GzipEncoder& operator=(const GzipEncoder&) = delete;

  bool ready() const;  // false: there was no memory for it
  // The next piece of the body; what of it is encoded so far, all of it with the last. REQUIRES: ready().
  std::string Encode(std::string_view piece, bool last);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire::server
