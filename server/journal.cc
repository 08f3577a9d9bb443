#include "server/journal.h"

#include <fmt/format.h>
#include <poll.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <syslog.h>
#define SD_JOURNAL_SUPPRESS_LOCATION  // it would be that of one function, in the folder of the build
#include <systemd/sd-journal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/log_queue.h"

namespace quire::server {
namespace {

// Whether stderr is the stream that the service manager connected to the journal.
bool StderrIsJournal() {
  const char* stream = std::getenv("JOURNAL_STREAM");
  struct stat status {};
  if (stream == nullptr || ::fstat(STDERR_FILENO, &status) != 0) return false;
  return stream == fmt::format("{}:{}", status.st_dev, status.st_ino);
}

bool to_journal = false;    // set by SetUpLog()
LogQueue* queue = nullptr;  // set by SetUpLog(); lives as long as the program

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
  LogQueue::Entry Take() && { return std::move(fields_); }
  void Send() && { queue->Push(std::move(fields_)); }

 private:
  std::vector<std::string> fields_;
};

std::string LocalTime() {
  std::tm local{};
  const std::time_t now = std::time(nullptr);
  ::localtime_r(&now, &local);
  char text[64];
  return {text, std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S%z", &local)};
}

Entry JournalEntry(std::string_view message, int priority) {
  Entry entry;
  entry.Text("MESSAGE", message);
  entry.Number("PRIORITY", priority);
  entry.Text("SYSLOG_IDENTIFIER", "quired");
  return entry;
}

int PriorityOf(spdlog::level::level_enum level) {
  if (level <= spdlog::level::debug) return LOG_DEBUG;
  if (level == spdlog::level::info) return LOG_INFO;
  return level == spdlog::level::warn ? LOG_WARNING : LOG_ERR;
}

// Formats where the message is logged, so that its time is right; the queue's thread writes.
class QueueSink : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (to_journal) {
      JournalEntry({message.payload.data(), message.payload.size()}, PriorityOf(message.level)).Send();
      return;
    }
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    queue->Push({std::string(line.data(), line.size())});
  }
  void flush_() override {}
};

void SendToJournal(const LogQueue::Entry& fields) {
  std::vector<iovec> pieces;
  pieces.reserve(fields.size());
  for (const std::string& field : fields) pieces.push_back({const_cast<char*>(field.data()), field.size()});
  ::sd_journal_sendv(pieces.data(), static_cast<int>(pieces.size()));
}

// Waits for a reader as long as it takes. A line that cannot be written at all is lost.
void WriteToStderr(const LogQueue::Entry& line) {
  std::string_view rest = line[0];
  while (!rest.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, rest.data(), rest.size());
    if (written >= 0) {
      rest.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN) {  // whoever started the daemon made it non-blocking
      pollfd ready{STDERR_FILENO, POLLOUT, 0};
      ::poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      return;
    }
  }
}

LogQueue::Output OutputOf(bool journal) {
  if (journal) {
    return {SendToJournal, [](uint64_t dropped) {
              return JournalEntry(fmt::format("log lines dropped count={}", dropped), LOG_WARNING).Take();
            }};
  }
  return {WriteToStderr, [](uint64_t dropped) {
            const std::string now = LocalTime();
            return LogQueue::Entry{fmt::format("{} warning log lines dropped count={}\n", now, dropped)};
          }};
}

}  // namespace

void SetUpLog(int32_t debug) {
  to_journal = StderrIsJournal();
  queue = new LogQueue(OutputOf(to_journal));
  queue->DrainAtCrash();
  auto logger = std::make_shared<spdlog::logger>("quired", std::make_shared<QueueSink>());
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l %v");
  spdlog::set_default_logger(std::move(logger));
  SetLogLevel(debug);
}

bool DrainLog() { return queue == nullptr || queue->Drain(LogQueue::kDrainTime); }

uint64_t DroppedLogLines() { return queue == nullptr ? 0 : queue->dropped(); }

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
  Entry entry = JournalEntry(FormatRequest(log, std::chrono::steady_clock::now()),
                             log.status >= 500 ? LOG_WARNING : LOG_INFO);
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
  std::move(entry).Send();
}

}  // namespace quire::server
