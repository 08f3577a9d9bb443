#include "server/journal.h"

#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/sinks/systemd_sink.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quire::server {
namespace {

constexpr int kInfo = 6;
constexpr int kWarning = 4;

// Whether stderr is the stream that the service manager connected to the journal.
bool StderrIsJournal() {
  const char* stream = std::getenv("JOURNAL_STREAM");
  struct stat status {};
  if (stream == nullptr || ::fstat(STDERR_FILENO, &status) != 0) return false;
  return stream == fmt::format("{}:{}", status.st_dev, status.st_ino);
}

bool to_journal = false;  // set by SetUpLog()

class Entry {
 public:
  void Text(std::string_view name, std::string_view value) {
    if (!value.empty()) fields_.push_back(fmt::format("{}={}", name, value));
  }
  template <class T>
  void Number(std::string_view name, T value) {
    fields_.push_back(fmt::format("{}={}", name, value));
  }
  void Millis(std::string_view name, std::chrono::nanoseconds value) {
    Text(name, fmt::format("{:.1f}", std::chrono::duration<double, std::milli>(value).count()));
  }
  void Send() const {
    std::vector<iovec> pieces;
    pieces.reserve(fields_.size());
    for (const std::string& field : fields_) {
      pieces.push_back({const_cast<char*>(field.data()), field.size()});
    }
    ::sd_journal_sendv(pieces.data(), static_cast<int>(pieces.size()));
  }

 private:
  std::vector<std::string> fields_;
};

}  // namespace

void SetUpLog(int32_t debug) {
  to_journal = StderrIsJournal();
  std::shared_ptr<spdlog::logger> logger;
  if (to_journal) {
    logger = std::make_shared<spdlog::logger>("quired",
                                              std::make_shared<spdlog::sinks::systemd_sink_mt>("quired"));
    logger->set_pattern("%v");
  } else {
    logger = std::make_shared<spdlog::logger>("quired", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l %v");
  }
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
  SetLogLevel(debug);
}

void SetLogLevel(int32_t debug) {
  spdlog::set_level(debug >= 2   ? spdlog::level::trace
                    : debug == 1 ? spdlog::level::debug
                                 : spdlog::level::info);
}

void WriteRequest(const RequestLog& log) {
  if (!to_journal) {
    LogRequest(log);
    return;
  }
  Entry entry;
  entry.Text("MESSAGE", FormatRequest(log, std::chrono::steady_clock::now()));
  entry.Number("PRIORITY", log.status >= 500 ? kWarning : kInfo);
  entry.Text("SYSLOG_IDENTIFIER", "quired");
  entry.Text("REQUEST_ID", log.id);
  entry.Text("MODEL", log.stored_model);
  entry.Text("ENDPOINT", log.route);
  entry.Text("CLIENT", log.client);
  entry.Text("API_KEY_NAME", log.key);
  entry.Number("STATUS", log.status);
  if (log.queued) entry.Millis("QUEUE_MS", *log.queued);
  if (log.first_token) entry.Millis("TTFT_MS", *log.first_token);
  if (log.prompt_tokens) entry.Number("PROMPT_TOKENS", *log.prompt_tokens);
  if (log.cached_tokens) entry.Number("CACHED_TOKENS", *log.cached_tokens);
  entry.Text("MISS_REASON", log.miss);
  if (log.output_tokens) entry.Number("OUTPUT_TOKENS", *log.output_tokens);
  entry.Text("FINISH_REASON", log.finish);
  if (log.runner_pid > 0) entry.Number("RUNNER_PID", log.runner_pid);
  entry.Send();
}

}  // namespace quire::server
