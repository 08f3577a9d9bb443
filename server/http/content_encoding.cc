#include "server/http/content_encoding.h"

#include <fmt/format.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "api/base/ascii.h"

namespace quire::server {
namespace {

constexpr size_t kBufferBytes = size_t{64} << 10;
constexpr int kGzipOnly = 16 + MAX_WBITS;  // zlib: a gzip header is required, or written
constexpr int kDeflateMemoryLevel = 8;     // zlib's own default
constexpr int kZstdWindowLogMax = 23;      // 8 MiB, what RFC 9659 lets a sender of HTTP use

}  // namespace

// One codec's state.
class BodyDecoder::Stream {
 public:
  struct Progress {
    size_t consumed = 0;
    size_t produced = 0;
    bool ended = false;  // of a member or frame
  };

  virtual ~Stream() = default;
  // Nothing: the input is broken. Another member or frame may follow the end of one.
  virtual std::optional<Progress> Decode(std::string_view input, char* out, size_t out_bytes) = 0;
};

namespace {

class GzipStream : public BodyDecoder::Stream {
 public:
  GzipStream() { ready_ = ::inflateInit2(&state_, kGzipOnly) == Z_OK; }
  ~GzipStream() override {
    if (ready_) ::inflateEnd(&state_);
  }

  std::optional<Progress> Decode(std::string_view input, char* out, size_t out_bytes) override {
    if (!ready_) return std::nullopt;
    const auto in_bytes = static_cast<uInt>(std::min<size_t>(input.size(), kBufferBytes));
    state_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(input.data()));
    state_.avail_in = in_bytes;
    state_.next_out = reinterpret_cast<Bytef*>(out);
    state_.avail_out = static_cast<uInt>(out_bytes);
    const int status = ::inflate(&state_, Z_NO_FLUSH);
    if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR) return std::nullopt;
    const Progress progress{in_bytes - state_.avail_in, out_bytes - state_.avail_out, status == Z_STREAM_END};
    if (progress.ended && ::inflateReset(&state_) != Z_OK) return std::nullopt;
    return progress;
  }

 private:
  z_stream state_ = {};
  bool ready_ = false;
};

class ZstdStream : public BodyDecoder::Stream {
 public:
  ZstdStream() : state_(::ZSTD_createDCtx(), ::ZSTD_freeDCtx) {
    if (state_) ::ZSTD_DCtx_setParameter(state_.get(), ZSTD_d_windowLogMax, kZstdWindowLogMax);
  }

  std::optional<Progress> Decode(std::string_view input, char* out, size_t out_bytes) override {
    if (!state_) return std::nullopt;
    ZSTD_inBuffer in{input.data(), std::min(input.size(), kBufferBytes), 0};
    ZSTD_outBuffer made{out, out_bytes, 0};
    const size_t left = ::ZSTD_decompressStream(state_.get(), &made, &in);
    if (::ZSTD_isError(left) != 0) return std::nullopt;
    return Progress{in.pos, made.pos, left == 0};
  }

 private:
  std::unique_ptr<ZSTD_DCtx, decltype(&::ZSTD_freeDCtx)> state_;
};

std::unique_ptr<BodyDecoder::Stream> StreamOf(ContentEncoding encoding) {
  if (encoding == ContentEncoding::kGzip) return std::make_unique<GzipStream>();
  return std::make_unique<ZstdStream>();
}

}  // namespace

std::expected<ContentEncoding, ParseFailure> ContentEncodingOf(const HttpRequest& request) {
  ContentEncoding found = ContentEncoding::kIdentity;
  for (const HeaderField& field : request.fields) {
    if (field.name != "content-encoding") continue;
    const std::string name = api::AsciiLower(api::Trimmed(field.value, " \t"));
    if (name.empty() || name == "identity") continue;
    const bool gzip = name == "gzip" || name == "x-gzip";
    if ((!gzip && name != "zstd") || found != ContentEncoding::kIdentity) {
      return std::unexpected<ParseFailure>({415, "unsupported Content-Encoding; use gzip, zstd or none"});
    }
    found = gzip ? ContentEncoding::kGzip : ContentEncoding::kZstd;
  }
  return found;
}

BodyDecoder::BodyDecoder(ContentEncoding encoding, std::string_view body, uint64_t bytes_max)
    : stream_(StreamOf(encoding)), left_(body), bytes_max_(bytes_max) {}
BodyDecoder::~BodyDecoder() = default;

std::expected<bool, ParseFailure> BodyDecoder::Step(size_t bytes) {
  char buffer[kBufferBytes];
  for (size_t made = 0; made < bytes;) {
    if (left_.empty() && !unfinished_) return true;
    const auto progress = stream_->Decode(left_, buffer, std::min(sizeof(buffer), bytes - made));
    if (!progress) return std::unexpected<ParseFailure>({400, "the compressed request body is broken"});
    left_.remove_prefix(progress->consumed);
    unfinished_ = !progress->ended;
    if (progress->produced > bytes_max_ - out_.size()) {
      return std::unexpected<ParseFailure>(
          {413, fmt::format("request body is larger than {} bytes when decompressed", bytes_max_)});
    }
    out_.append(buffer, progress->produced);
    made += progress->produced + progress->consumed;
    const bool stuck = progress->consumed == 0 && progress->produced == 0 && !progress->ended;
    if (stuck) return std::unexpected<ParseFailure>({400, "the compressed request body is cut off"});
  }
  return left_.empty() && !unfinished_;
}

struct GzipEncoder::State {
  State() {
    ready = ::deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, kGzipOnly, kDeflateMemoryLevel,
                           Z_DEFAULT_STRATEGY) == Z_OK;
  }
  ~State() {
    if (ready) ::deflateEnd(&stream);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  z_stream stream = {};
  bool ready = false;
};

GzipEncoder::GzipEncoder() : state_(std::make_unique<State>()) {}
GzipEncoder::~GzipEncoder() = default;
bool GzipEncoder::ready() const { return state_->ready; }

std::string GzipEncoder::Encode(std::string_view piece, bool last) {
  z_stream& stream = state_->stream;
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(piece.data()));  // zlib reads it only
  stream.avail_in = static_cast<uInt>(piece.size());
  std::string out;
  for (bool more = true; more;) {
    constexpr size_t kStep = size_t{16} << 10;
    const size_t before = out.size();
    out.resize(before + kStep);
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + before);
    stream.avail_out = static_cast<uInt>(kStep);
    ::deflate(&stream, last ? Z_FINISH : Z_NO_FLUSH);
    more = stream.avail_out == 0;
    out.resize(out.size() - stream.avail_out);
  }
  return out;
}

}  // namespace quire::server
