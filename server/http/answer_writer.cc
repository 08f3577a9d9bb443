#include "server/http/answer_writer.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <iterator>
#include <utility>

namespace quire::server {
namespace {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;

// Between the first two probes; each interval is twice the last.
constexpr std::chrono::seconds kProbeInterval(1);
constexpr std::string_view kHeaderStart = "HTTP/1.";  // of every answer
// Bytes of a body that leave with the header; what is behind them is sent from where it is.
constexpr size_t kBodyWithHeader = size_t{16} << 10;

// JSON of at least as many bytes is worth encoding, for a client that takes that.
constexpr size_t kEncodedBytesMin = size_t{1} << 10;
constexpr size_t kEncodedPiece = size_t{64} << 10;  // a millisecond of work, or two

bool HasNoBody(int status) { return status == 204 || status == 304; }

bool IsEncodable(const HttpResponse& response) {
  return response.body.size() >= kEncodedBytesMin && response.content_type.starts_with("application/json") &&
         !HasNoBody(response.status) &&
         std::ranges::find(response.headers, "Content-Encoding", &HeaderField::name) ==
             response.headers.end();
}

}  // namespace

AnswerWriter::AnswerWriter(const Transport& transport, Connection& connection, const HttpRequest& request,
                           RequestLog& log, const asio::any_io_executor& executor)
    : transport_(transport),
      request_(request),
      log_(log),
      output_(connection, executor),
      keep_alive_timer_(executor) {}

AnswerWriter::Output::Output(Connection& connection, const asio::any_io_executor& executor)
    : connection_(connection), done_(executor, Clock::time_point::max()), last_(Clock::now()) {}

Awaitable<void> AnswerWriter::Output::Wait() {
  while (writing_) co_await done_.async_wait(kTuple);
}

Awaitable<bool> AnswerWriter::Output::Write(std::string bytes, AnswerKind kind, std::string_view rest) {
  co_await Wait();
  writing_ = true;
  bool sent = co_await connection_.Write(bytes, kind);
  if (sent && !rest.empty()) sent = co_await connection_.Write(rest, kind);
  writing_ = false;
  last_ = Clock::now();
  done_.cancel();
  co_return sent;
}

std::string AnswerWriter::Header(int status, std::string_view content_type,
                                 const std::vector<HeaderField>& fields) {
  if (transport_.draining || !request_.keep_alive) close_ = true;
  log_.status = status;
  std::string header = fmt::format(
      "HTTP/1.{} {} {}\r\nX-Request-Id: {}\r\nrequest-id: {}\r\nDate: {:%a, %d %b %Y %H:%M:%S} GMT\r\n",
      request_.minor_version, status, ReasonPhrase(status), log_.id, log_.id,
      fmt::gmtime(std::time(nullptr)));
  const auto out = std::back_inserter(header);
  if (!content_type.empty()) fmt::format_to(out, "Content-Type: {}\r\n", content_type);
  for (const HeaderField& field : fields_) fmt::format_to(out, "{}: {}\r\n", field.name, field.value);
  for (const HeaderField& field : fields) fmt::format_to(out, "{}: {}\r\n", field.name, field.value);
  if (close_) header += "Connection: close\r\n";
  header.erase(0, probed_header_bytes_);
  return header;
}

bool AnswerWriter::MayEncode(const HttpResponse& response) const {
  return IsEncodable(response) && request_.minor_version > 0 && request_.Accepts("accept-encoding", "gzip");
}

Awaitable<bool> AnswerWriter::Send(HttpResponse response, bool encode) {
  if (IsEncodable(response)) response.headers.push_back({"Vary", "Accept-Encoding"});
  if (encode) {
    auto encoder = std::make_unique<GzipEncoder>();
    if (encoder->ready()) co_return co_await SendEncoded(std::move(response), std::move(encoder));
  }
  std::string bytes = Header(response.status, response.content_type, response.headers);
  if (!HasNoBody(response.status)) {
    fmt::format_to(std::back_inserter(bytes), "Content-Length: {}\r\n", response.body.size());
  }
  bytes += "\r\n";
  const bool with_body = request_.method != "HEAD" && !HasNoBody(response.status);
  const std::string_view body = with_body ? std::string_view(response.body) : std::string_view();
  bytes += body.substr(0, kBodyWithHeader);
  const std::string_view rest = body.substr(std::min(body.size(), kBodyWithHeader));
  // Where memory was short above, nothing of the answer has left.
  state_ = State::kStreaming;
  kind_ = AnswerKind::kWhole;
  log_.bytes += body.size();
  const bool sent = co_await output_.Write(std::move(bytes), kind_, rest);
  if (sent) state_ = State::kComplete;
  co_return sent;
}

Awaitable<bool> AnswerWriter::SendEncoded(HttpResponse response, std::unique_ptr<GzipEncoder> encoder) {
  response.headers.push_back({"Content-Encoding", "gzip"});
  keep_alive_type_.clear();
  std::string_view left = response.body;
  std::string encoded;
  const std::function<void()> encode = [&] {
    const std::string_view piece = left.substr(0, kEncodedPiece);
    left.remove_prefix(piece.size());
    encoded = encoder->Encode(piece, left.empty());
  };
  co_await transport_.compute(request_.party, encode);
  // Behind the wait: ProbeClient() may have sent some of it meanwhile.
  std::string bytes = Header(response.status, response.content_type, response.headers);
  const bool whole = left.empty();
  bytes += whole ? fmt::format("Content-Length: {}\r\n\r\n", encoded.size())
                 : std::string("Transfer-Encoding: chunked\r\n\r\n");
  // Where memory was short above, nothing of the answer has left.
  state_ = State::kStreaming;
  kind_ = AnswerKind::kWhole;
  const bool with_body = request_.method != "HEAD";
  if (with_body) {
    bytes += whole ? encoded : Framed(encoded);
    log_.bytes += encoded.size();
  }
  bool sent = co_await output_.Write(std::move(bytes), kind_);
  while (sent && with_body && !left.empty()) {
    co_await transport_.compute(request_.party, encode);
    log_.bytes += encoded.size();
    bytes = Framed(encoded);
    if (left.empty()) bytes += "0\r\n\r\n";
    sent = co_await output_.Write(std::move(bytes), kind_);
  }
  if (sent) state_ = State::kComplete;
  co_return sent;
}

std::string AnswerWriter::StreamHeader(std::string_view content_type) {
  if (request_.minor_version == 0) close_ = true;
  std::string header = Header(200, content_type, {{"Cache-Control", "no-cache"}});
  if (request_.minor_version > 0) header += "Transfer-Encoding: chunked\r\n";
  header += "\r\n";
  return header;
}

std::string AnswerWriter::Framed(std::string_view bytes) const {
  if (bytes.empty()) return {};
  return request_.minor_version == 0 ? std::string(bytes)
                                     : fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes);
}

Awaitable<bool> AnswerWriter::Stream(std::string_view content_type, std::string bytes) {
  // The header is made when nothing else is on its way: a keep-alive may start the stream.
  co_await output_.Wait();
  std::string out;
  if (state_ == State::kNothing) out = StreamHeader(content_type);
  out += Framed(bytes);
  // Where memory was short above, nothing of the answer has left.
  if (state_ == State::kNothing) chunks_ = request_.minor_version > 0;
  state_ = State::kStreaming;
  log_.bytes += bytes.size();
  co_return co_await output_.Write(std::move(out), kind_);
}

Awaitable<bool> AnswerWriter::EndStream() {
  keep_alive_type_.clear();
  chunks_ = false;
  std::string last;
  if (request_.minor_version > 0) last = "0\r\n\r\n";
  const bool sent = co_await output_.Write(std::move(last), kind_);
  if (sent) state_ = State::kComplete;
  co_return sent;
}

void AnswerWriter::KeepAlive(std::string_view content_type, std::string_view bytes) {
  keep_alive_type_ = content_type;
  keep_alive_bytes_ = bytes;
  output_.CountFromNow();
}

// What can be sent now without a change of the answer: a byte of the header's start, or a leading zero of the
// next chunk's size. Empty: nothing.
std::string AnswerWriter::NextProbe() {
  if (output_.writing()) return {};
  if (state_ == State::kNothing) return std::string(1, kHeaderStart[probed_header_bytes_++]);
  return chunks_ ? "0" : "";
}

Awaitable<void> AnswerWriter::ProbeClient() {
  asio::steady_timer timer(keep_alive_timer_.get_executor());
  auto interval = kProbeInterval;
  for (size_t probes = 0; probes < kHeaderStart.size(); ++probes) {
    std::string probe = NextProbe();
    if (!probe.empty()) {
      const bool sent = co_await output_.Write(std::move(probe), kind_);
      if (!sent) co_return;
    }
    timer.expires_after(interval);
    co_await timer.async_wait(kTuple);
    interval *= 2;
  }
  timer.expires_at(Clock::time_point::max());
  co_await timer.async_wait(kTuple);
}

Awaitable<void> AnswerWriter::SendKeepAlives() {
  const auto interval = transport_.limits.keep_alive_interval;
  for (;;) {
    keep_alive_timer_.expires_at(std::max(output_.last() + interval, Clock::now() + interval / 4));
    co_await keep_alive_timer_.async_wait(kTuple);
    // The handler has ended. The next wait would throw.
    const asio::cancellation_state state = co_await asio::this_coro::cancellation_state;
    if (state.cancelled() != asio::cancellation_type::none) co_return;
    const bool nothing_to_send = keep_alive_bytes_.empty() && state_ != State::kNothing;
    if (keep_alive_type_.empty() || nothing_to_send) continue;
    if (output_.writing() || Clock::now() < output_.last() + interval) continue;
    const bool taken = co_await Stream(keep_alive_type_, keep_alive_bytes_);
    if (!taken) co_return;
  }
}

}  // namespace quire::server
