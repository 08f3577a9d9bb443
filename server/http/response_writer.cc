#include "server/http/response_writer.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <ctime>
#include <iterator>
#include <utility>

#include "server/http/awaitable.h"

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

std::optional<ParseFailure> FailureOf(const std::optional<fair::Quota::Refusal>& refusal,
                                      std::string_view what) {
  if (!refusal) return std::nullopt;
  if (refusal->bound == fair::Quota::Bound::kParty)
    return ParseFailure{429, fmt::format("too many large {} of this client in memory", what)};
  return ParseFailure{503, fmt::format("too many {} in memory", what)};
}

ResponseWriter::ResponseWriter(const Transport& transport, Connection& connection, HttpRequest& request,
                               RequestLog& log, BodyReader& body, Memory memory,
                               const asio::any_io_executor& executor)
    : transport_(transport),
      connection_(connection),
      request_(request),
      log_(log),
      body_(body),
      memory_(memory),
      body_limit_(transport.limits.Bodies().party),
      keep_alive_interval_(transport.limits.keep_alive_interval),
      keep_alive_timer_(executor),
      write_done_(executor, Clock::time_point::max()),
      last_write_(Clock::now()) {}

void ResponseWriter::DropBody() {
  dropped_bytes_ += request_.body.size();
  std::string().swap(request_.body);  // an assignment keeps the memory
}

std::optional<ParseFailure> ResponseWriter::ReserveRequest(uint64_t bytes) {
  const uint64_t all = request_.body.size() + bytes;
  if (all <= body_limit_) return FailureOf(memory_.body.GrowTo(all), kBodies);
  return ParseFailure{
      413, fmt::format("the request, with a copy for each choice, takes more than {} bytes of memory",
                       body_limit_)};
}

void ResponseWriter::ShrinkRequest(uint64_t bytes) { memory_.body.ShrinkTo(request_.body.size() + bytes); }

std::optional<ParseFailure> ResponseWriter::ReserveAnswer(uint64_t bytes) {
  const uint64_t limit = transport_.limits.answer_bytes_max;
  if (bytes <= limit) return FailureOf(memory_.answer.GrowTo(bytes), kAnswers);
  return ParseFailure{
      413, fmt::format("the answer is larger than {} bytes, the limit of one that is sent whole; ask for "
                       "fewer tokens, choices, logprobs or texts, or for a stream",
                       limit)};
}

std::string ResponseWriter::ClientText(const std::string& message) {
  std::string text = transport_.client_text(message);
  if (text != message) spdlog::warn("id={} error_detail={}", log_.id, LogValue(message));
  return text;
}

std::string ResponseWriter::Header(int status, std::string_view content_type,
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

Awaitable<bool> ResponseWriter::Send(HttpResponse response) {
  if (!close_ && !body_.done()) {
    const bool dropped = co_await body_.Drop();
    if (!dropped) close_ = true;
  }
  if (IsEncodable(response)) {
    response.headers.push_back({"Vary", "Accept-Encoding"});
    if (request_.minor_version > 0 && request_.Accepts("accept-encoding", "gzip")) {
      auto encoder = std::make_unique<GzipEncoder>();
      if (encoder->ready()) co_return co_await SendEncoded(std::move(response), std::move(encoder));
    }
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
  EndWork();
  const bool sent = co_await WriteAlone(std::move(bytes), rest);
  if (sent) state_ = State::kComplete;
  co_return sent;
}

Awaitable<bool> ResponseWriter::SendEncoded(HttpResponse response, std::unique_ptr<GzipEncoder> encoder) {
  response.headers.push_back({"Content-Encoding", "gzip"});
  std::string bytes = Header(response.status, response.content_type, response.headers);
  std::string_view left = response.body;
  const auto next = [&] {
    const std::string_view piece = left.substr(0, kEncodedPiece);
    left.remove_prefix(piece.size());
    return encoder->Encode(piece, left.empty());
  };
  std::string encoded = next();
  const bool whole = left.empty();
  bytes += whole ? fmt::format("Content-Length: {}\r\n\r\n", encoded.size())
                 : std::string("Transfer-Encoding: chunked\r\n\r\n");
  // Where memory was short above, nothing of the answer has left.
  keep_alive_type_.clear();
  state_ = State::kStreaming;
  kind_ = AnswerKind::kWhole;
  const bool with_body = request_.method != "HEAD";
  if (with_body) {
    bytes += whole ? encoded : Framed(encoded);
    log_.bytes += encoded.size();
  }
  bool sent = co_await WriteAlone(std::move(bytes));
  while (sent && with_body && !left.empty()) {
    encoded = next();
    log_.bytes += encoded.size();
    bytes = Framed(encoded);
    if (left.empty()) bytes += "0\r\n\r\n";
    sent = co_await WriteAlone(std::move(bytes));
  }
  if (sent) state_ = State::kComplete;
  co_return sent;
}

std::string ResponseWriter::StreamHeader(std::string_view content_type) {
  if (request_.minor_version == 0) close_ = true;
  std::string header = Header(200, content_type, {{"Cache-Control", "no-cache"}});
  if (request_.minor_version > 0) header += "Transfer-Encoding: chunked\r\n";
  header += "\r\n";
  return header;
}

std::string ResponseWriter::Framed(std::string_view bytes) const {
  if (bytes.empty()) return {};
  return request_.minor_version == 0 ? std::string(bytes)
                                     : fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes);
}

Awaitable<bool> ResponseWriter::Stream(std::string_view content_type, std::string bytes) {
  // The header is made when nothing else is on its way: a keep-alive may start the stream.
  while (writing_) co_await write_done_.async_wait(kTuple);
  std::string out;
  if (state_ == State::kNothing) out = StreamHeader(content_type);
  out += Framed(bytes);
  // Where memory was short above, nothing of the answer has left.
  if (state_ == State::kNothing) chunks_ = request_.minor_version > 0;
  state_ = State::kStreaming;
  log_.bytes += bytes.size();
  co_return co_await WriteAlone(std::move(out));
}

Awaitable<bool> ResponseWriter::EndStream() {
  keep_alive_type_.clear();
  chunks_ = false;
  std::string last;
  if (request_.minor_version > 0) last = "0\r\n\r\n";
  const bool sent = co_await WriteAlone(std::move(last));
  if (sent) state_ = State::kComplete;
  co_return sent;
}

Awaitable<bool> ResponseWriter::WriteAlone(std::string bytes, std::string_view rest) {
  while (writing_) co_await write_done_.async_wait(kTuple);
  writing_ = true;
  bool sent = co_await connection_.Write(bytes, kind_);
  if (sent && !rest.empty()) sent = co_await connection_.Write(rest, kind_);
  writing_ = false;
  last_write_ = Clock::now();
  write_done_.cancel();
  co_return sent;
}

void ResponseWriter::KeepAlive(std::string_view content_type, std::string_view bytes) {
  keep_alive_type_ = content_type;
  keep_alive_bytes_ = bytes;
  last_write_ = Clock::now();
}

// What can be sent now without a change of the answer: a byte of the header's start, or a leading zero of the
// next chunk's size. Empty: nothing.
std::string ResponseWriter::NextProbe() {
  if (writing_) return {};
  if (state_ == State::kNothing) return std::string(1, kHeaderStart[probed_header_bytes_++]);
  return chunks_ ? "0" : "";
}

Awaitable<void> ResponseWriter::ProbeClient() {
  asio::steady_timer timer(keep_alive_timer_.get_executor());
  auto interval = kProbeInterval;
  for (size_t probes = 0; probes < kHeaderStart.size(); ++probes) {
    std::string probe = NextProbe();
    if (!probe.empty()) {
      const bool sent = co_await WriteAlone(std::move(probe));
      if (!sent) co_return;
    }
    timer.expires_after(interval);
    co_await timer.async_wait(kTuple);
    interval *= 2;
  }
  timer.expires_at(Clock::time_point::max());
  co_await timer.async_wait(kTuple);
}

Awaitable<void> ResponseWriter::SendKeepAlives() {
  for (;;) {
    keep_alive_timer_.expires_at(
        std::max(last_write_ + keep_alive_interval_, Clock::now() + keep_alive_interval_ / 4));
    co_await keep_alive_timer_.async_wait(kTuple);
    // The handler has ended. The next wait would throw.
    const asio::cancellation_state state = co_await asio::this_coro::cancellation_state;
    if (state.cancelled() != asio::cancellation_type::none) co_return;
    const bool nothing_to_send = keep_alive_bytes_.empty() && state_ != State::kNothing;
    if (keep_alive_type_.empty() || nothing_to_send) continue;
    if (writing_ || Clock::now() < last_write_ + keep_alive_interval_) continue;
    const bool taken = co_await Stream(keep_alive_type_, keep_alive_bytes_);
    if (!taken) co_return;
  }
}

}  // namespace quire::server
