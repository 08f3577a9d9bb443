#include "server/http/request_log.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <iterator>
#include <string_view>

namespace quire::server {
namespace {

constexpr size_t kValueBytesMax = 256;

bool IsPlain(char c) { return c > ' ' && c < 0x7F && c != '"' && c != '\\' && c != '='; }

class Line {
 public:
  void Text(std::string_view key, std::string_view value) {
    if (!value.empty()) fmt::format_to(Out(), "{}={}", key, LogValue(value));
  }
  template <class T>
  void Number(std::string_view key, T value) {
    fmt::format_to(Out(), "{}={}", key, value);
  }
  void Millis(std::string_view key, std::chrono::nanoseconds value) {
    fmt::format_to(Out(), "{}={:.1f}", key, std::chrono::duration<double, std::milli>(value).count());
  }
  std::string Take() { return std::move(line_); }

 private:
  std::back_insert_iterator<std::string> Out() {
    if (!line_.empty()) line_.push_back(' ');
    return std::back_inserter(line_);
  }
  std::string line_;
};

}  // namespace

std::string LogValue(std::string_view value) {
  const std::string_view shown = value.substr(0, kValueBytesMax);
  if (!shown.empty() && shown.size() == value.size() && std::ranges::all_of(shown, IsPlain))
    return std::string(shown);
  std::string quoted = "\"";
  for (const char c : shown) {
    if (c == '"' || c == '\\') {
      quoted.push_back('\\');
      quoted.push_back(c);
    } else if (static_cast<unsigned char>(c) < ' ' || static_cast<unsigned char>(c) >= 0x7F) {
      fmt::format_to(std::back_inserter(quoted), "\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      quoted.push_back(c);
    }
  }
  if (shown.size() < value.size()) quoted += "...";
  quoted.push_back('"');
  return quoted;
}

void TokenGaps::Record(std::chrono::steady_clock::time_point now, int32_t tokens) {
  if (tokens <= 0) return;
  if (last) {
    const double each = std::chrono::duration<double>(now - *last).count() / tokens;
    const auto place = std::ranges::lower_bound(kBounds, each) - kBounds.begin();
    counts[static_cast<size_t>(place)] += static_cast<uint32_t>(tokens);
    sum += each * tokens;
  }
  last = now;
}

std::string_view MissForClients(const RequestLog& log) {
  return log.miss == "salt" ? std::string_view("cold") : log.miss;
}

std::string FormatRequest(const RequestLog& log, std::chrono::steady_clock::time_point now) {
  Line line;
  line.Text("id", log.id);
  line.Text("method", log.method);
  line.Text("path", log.path);
  line.Number("status", log.status);
  line.Text("model", log.model);
  line.Text("client", log.client);
  line.Text("key", log.key);
  line.Number("bytes", log.bytes);
  if (log.queued) line.Millis("queue_ms", *log.queued);
  if (log.first_token) line.Millis("ttft_ms", *log.first_token);
  line.Millis("total_ms", now - log.start);
  if (log.prompt_tokens) line.Number("prompt_tokens", *log.prompt_tokens);
  if (log.cached_tokens) line.Number("cached_tokens", *log.cached_tokens);
  line.Text("miss", log.miss);
  if (log.output_tokens) line.Number("output_tokens", *log.output_tokens);
  if (log.draft.rounds > 0) {
    line.Number("drafted_tokens", log.draft.drafted);
    line.Number("accepted_tokens", log.draft.accepted());
  }
  line.Text("finish", log.finish);
  line.Text("finish_in", log.finish_in);
  if (log.runner_pid > 0) line.Number("runner_pid", log.runner_pid);
  line.Text("error", log.error);
  return line.Take();
}

void AddDrafts(api::DraftUsage& sum, const api::DraftUsage& more) {
  sum.rounds += more.rounds;
  sum.drafted += more.drafted;
  sum.rollback_ns += more.rollback_ns;
  auto& positions = sum.accepted_by_position;
  positions.resize(std::max(positions.size(), more.accepted_by_position.size()));
  for (size_t i = 0; i < more.accepted_by_position.size(); ++i) positions[i] += more.accepted_by_position[i];
}

void LogRequest(const RequestLog& log) {
  spdlog::info("{}", FormatRequest(log, std::chrono::steady_clock::now()));
}

}  // namespace quire::server
