#include "server/http/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <optional>
#include <utility>

#include "api/base/ascii.h"

namespace quire::server {
namespace {

namespace http = boost::beast::http;
using boost::beast::error_code;
using boost::beast::string_view;

// Memory taken ahead of a body's bytes, whatever length the client announced: at first, and once as many have
// come.
constexpr uint64_t kBodyReserveFirst = uint64_t{64} << 10;
constexpr uint64_t kBodyReserveMax = uint64_t{4} << 20;
// Empty lines tolerated before a request line (some clients send one after a body).
constexpr int kLeadingEmptyLinesMax = 4;
// "0\r\n\r\n", the least that any unfinished chunked body still needs. Beast 1.81 asserts on less of a last
// chunk.
constexpr size_t kChunkedTailBytesMin = 5;

std::unexpected<ParseFailure> FailParse(int status, std::string reason) {
  return std::unexpected<ParseFailure>(ParseFailure{status, std::move(reason)});
}

std::string BodyTooLarge(uint64_t bytes_max) {
  return fmt::format("request body too large, the limit is {} bytes", bytes_max);
}

bool IsControl(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }

// "GET / HTTP/2.0": well-formed, of a version that is not ours.
bool NamesAVersion(std::string_view header) {
  const std::string_view line = header.substr(0, header.find('\r'));
  if (line.size() < 9 || std::ranges::count(line, ' ') != 2) return false;
  const std::string_view version = line.substr(line.size() - 9);
  return version.starts_with(" HTTP/") && api::IsAsciiDigit(version[6]) && version[7] == '.' &&
         api::IsAsciiDigit(version[8]);
}

}  // namespace

// Beast knows the grammar; what it hands out is kept here, and what it is lenient about is refused.
class HttpParser::Impl : public http::basic_parser<true> {
 public:
  Impl(HttpRequest& request, ParserLimits limits) : body_bytes_max(limits.body_bytes), request_(request) {
    header_limit(static_cast<std::uint32_t>(limits.header_bytes + 4));
    body_limit(boost::none);
  }

  std::optional<ParseFailure> failure;  // set together with an error code
  uint64_t body_bytes_max;

  // How the fields announce a body.
  int content_lengths = 0;
  int hosts = 0;
  uint64_t content_length = 0;
  bool chunked = false;

  uint64_t body_bytes = 0;  // so far; the caller may have emptied the body since

 private:
  void Fail(error_code& ec, int status, std::string reason) {
    failure = ParseFailure{status, std::move(reason)};
    ec = http::error::bad_value;
  }

  void on_request_impl(http::verb, string_view method, string_view target, int version,
                       error_code&) override {
    request_.method.assign(method.data(), method.size());
    request_.target.assign(target.data(), target.size());
    request_.minor_version = version % 10;
  }
  void on_response_impl(int, string_view, int, error_code&) override {}

  void on_field_impl(http::field field, string_view name, string_view value, error_code& ec) override {
    if (is_header_done()) return;  // a trailer never changes the request
    HeaderField kept{api::AsciiLower({name.data(), name.size()}), {value.data(), value.size()}};
    if (field == http::field::content_length) {
      if (++content_lengths > 1) return Fail(ec, 400, "repeated Content-Length");
      if (kept.value.empty() || !api::AllAsciiDigits(kept.value))
        return Fail(ec, 400, "invalid Content-Length");
    } else if (field == http::field::transfer_encoding) {
      if (!api::EqualIgnoringCase(kept.value, "chunked"))
        return Fail(ec, 501, "unsupported Transfer-Encoding");
      if (request_.minor_version == 0) return Fail(ec, 400, "Transfer-Encoding in an HTTP/1.0 request");
      chunked = true;
    } else if (field == http::field::host) {
      if (++hosts > 1) return Fail(ec, 400, "repeated Host");
      request_.host = kept.value;
    } else if (field == http::field::expect) {
      if (!api::EqualIgnoringCase(kept.value, "100-continue")) return Fail(ec, 417, "unknown expectation");
      request_.expects_continue = request_.minor_version == 1;
    }
    if (request_.fields.size() >= kFieldsMax)
      return Fail(ec, 431, fmt::format("more than {} request header fields", kFieldsMax));
    request_.fields.push_back(std::move(kept));
  }

  void on_header_impl(error_code&) override {
    if (const auto length = content_length_from_fields()) content_length = *length;
  }
  boost::optional<uint64_t> content_length_from_fields() const {
    return http::basic_parser<true>::content_length();
  }

  void on_body_init_impl(boost::optional<std::uint64_t> const& length, error_code&) override {
    if (length) Reserve(kBodyReserveFirst);
  }
  std::size_t on_body_impl(string_view bytes, error_code&) override { return AppendBody(bytes); }
  void on_chunk_header_impl(std::uint64_t size, string_view, error_code& ec) override {
    if (size > body_bytes_max - body_bytes) Fail(ec, 413, BodyTooLarge(body_bytes_max));
  }
  std::size_t on_chunk_body_impl(std::uint64_t, string_view bytes, error_code&) override {
    return AppendBody(bytes);
  }
  void on_finish_impl(error_code&) override {}

  // A body that grew piece by piece would be copied, and its pages made, several times.
  void Reserve(uint64_t bytes_max) {
    request_.body.reserve(static_cast<size_t>(std::min(content_length, bytes_max)));
  }
  size_t AppendBody(string_view bytes) {
    const bool outgrows = request_.body.size() + bytes.size() > kBodyReserveFirst;
    if (outgrows && request_.body.size() <= kBodyReserveFirst) Reserve(kBodyReserveMax);
    request_.body.append(bytes.data(), bytes.size());
    body_bytes += bytes.size();
    return bytes.size();
  }

  HttpRequest& request_;
};

HttpParser::HttpParser(ParserLimits limits)
    : limits_(limits), impl_(std::make_unique<Impl>(request_, limits)) {}
HttpParser::~HttpParser() = default;

uint64_t HttpParser::body_bytes() const { return impl_->body_bytes; }

std::expected<size_t, ParseFailure> HttpParser::Feed(std::string_view input) {
  if (done_ || input.empty()) return 0;
  return header_done_ ? FeedBody(input) : FeedHeader(input);
}

// Returns where the header ends, 0 when more bytes are needed.
std::expected<size_t, ParseFailure> HttpParser::FindHeaderEnd(std::string_view input) {
  for (; scanned_ < input.size(); ++scanned_) {
    if (scanned_ >= limits_.header_bytes) return FailParse(431, "request header too large");
    const char c = input[scanned_];
    if (scanned_ == 0 && (IsControl(c) || c == ' ')) return FailParse(400, "malformed request line");
    if (c == '\0') return FailParse(400, "NUL in the request header");
    if (c == '\n' && input[scanned_ - 1] != '\r')
      return FailParse(400, "bare line feed in the request header");
    if (scanned_ >= 2 && input[scanned_ - 1] == '\n' && (c == ' ' || c == '\t')) {
      return FailParse(400, "folded header field");
    }
    if (c == '\n' && scanned_ >= 3 && input.substr(scanned_ - 3, 4) == "\r\n\r\n") return scanned_ + 1;
  }
  return 0;
}

std::expected<size_t, ParseFailure> HttpParser::FeedHeader(std::string_view input) {
  if (scanned_ == 0) {
    size_t skipped = 0;
    while (input.substr(skipped).starts_with("\r\n")) {
      if (++empty_lines_ > kLeadingEmptyLinesMax) return FailParse(400, "malformed request line");
      skipped += 2;
    }
    if (skipped > 0) return skipped;
    if (input == "\r") return 0;
  }
  const auto end = FindHeaderEnd(input);
  if (!end || *end == 0) return end;

  const std::string_view header = input.substr(0, *end);
  error_code ec;
  impl_->put(boost::asio::buffer(header.data(), header.size()), ec);
  if (impl_->failure) return std::unexpected<ParseFailure>(*impl_->failure);
  if (ec == http::error::bad_version && NamesAVersion(header))
    return FailParse(505, "HTTP version not supported");
  if (ec) return FailParse(400, fmt::format("malformed request: {}", ec.message()));
  if (!impl_->is_header_done()) return FailParse(400, "malformed request");
  if (auto finished = FinishHeader(); !finished) return std::unexpected<ParseFailure>(finished.error());
  return *end;
}

std::expected<void, ParseFailure> HttpParser::FinishHeader() {
  header_done_ = true;
  done_ = impl_->is_done();
  chunked_ = impl_->chunked;
  content_length_ = impl_->content_length;
  request_.keep_alive = request_.minor_version == 1 && impl_->keep_alive();
  if (auto split = SplitTarget(); !split) return split;
  if (request_.minor_version == 1 && impl_->hosts == 0) return FailParse(400, "missing Host");
  impl_->eager(true);
  return {};
}

std::expected<void, ParseFailure> HttpParser::SplitTarget() {
  std::string_view target = request_.target;
  if (target == "*") {
    request_.path = "*";
    return {};
  }
  if (!target.starts_with('/')) {
    const size_t scheme = target.find("://");
    if (scheme == std::string_view::npos || !(api::EqualIgnoringCase(target.substr(0, scheme), "http") ||
                                              api::EqualIgnoringCase(target.substr(0, scheme), "https"))) {
      return FailParse(400, "malformed request target");
    }
    const std::string_view rest = target.substr(scheme + 3);
    const size_t end = std::min(rest.find_first_of("/?"), rest.size());
    request_.host = rest.substr(0, end);
    if (request_.host.empty() || request_.host.contains('@'))
      return FailParse(400, "malformed request target");
    std::string origin_form(rest.substr(end));
    if (!origin_form.starts_with('/')) origin_form.insert(0, 1, '/');
    request_.target = std::move(origin_form);
    target = request_.target;
  }
  target = target.substr(0, target.find('#'));
  const size_t mark = std::min(target.find('?'), target.size());
  if (mark < target.size()) request_.query = target.substr(mark + 1);
  if (!PercentDecode(target.substr(0, mark), request_.path) ||
      std::ranges::any_of(request_.path, IsControl)) {
    return FailParse(400, "malformed request target");
  }
  return {};
}

std::expected<void, ParseFailure> HttpParser::AllowBody(uint64_t bytes) {
  impl_->body_bytes_max = bytes;
  if (content_length_ > bytes) return FailParse(413, BodyTooLarge(bytes));
  return {};
}

std::expected<size_t, ParseFailure> HttpParser::FeedBody(std::string_view input) {
  if (content_length_ > impl_->body_bytes_max) return FailParse(413, BodyTooLarge(impl_->body_bytes_max));
  if (chunked_ && input.size() < kChunkedTailBytesMin) return 0;
  error_code ec;
  const size_t used = impl_->put(boost::asio::buffer(input.data(), input.size()), ec);
  if (impl_->failure) return std::unexpected<ParseFailure>(*impl_->failure);
  if (ec && ec != http::error::need_more) {
    return FailParse(400, fmt::format("malformed request body: {}", ec.message()));
  }
  done_ = impl_->is_done();
  // Only a chunk's head or the trailer can wait for more bytes; neither may grow without end.
  if (!done_ && input.size() - used > limits_.header_bytes)
    return FailParse(400, "chunk header or trailer too large");
  return used;
}

}  // namespace quire::server
