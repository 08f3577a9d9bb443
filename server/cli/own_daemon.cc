#include "server/cli/own_daemon.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "server/cli/doctor.h"
#include "server/cli/local_store.h"

namespace quire::cli {
namespace {

constexpr int kFirstSocket = 3;  // of those that a service manager hands over
constexpr int kBacklog = 64;

std::unexpected<api::Error> Failed(std::string_view what) {
  return api::Fail(api::ErrorCode::kUnavailable, fmt::format("{}: {}", what, std::strerror(errno)));
}

// A listening socket on a free loopback port, which clients may connect to from now on; `port` is set.
int Listen(uint16_t& port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  if (fd < 0 || ::bind(fd, raw, size) != 0 || ::listen(fd, kBacklog) != 0 ||
      ::getsockname(fd, raw, &size) != 0) {
    if (fd >= 0) ::close(fd);
    return -1;
  }
  port = ::ntohs(address.sin_port);
  return fd;
}

// In the child: becomes `quire serve` with the socket. REQUIRES: one thread.
[[noreturn]] void RunServe(const char* program, int listening, int log, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) std::_Exit(1);
  ::dup2(log, STDERR_FILENO);
  ::dup2(log, STDOUT_FILENO);
  if (listening == kFirstSocket) {
    ::fcntl(listening, F_SETFD, 0);
  } else {
    ::dup2(listening, kFirstSocket);
  }
  ::setenv("LISTEN_FDS", "1", 1);
  ::setenv("LISTEN_PID", fmt::format("{}", ::getpid()).c_str(), 1);
  ::unsetenv("LISTEN_FDNAMES");
  ::unsetenv("NOTIFY_SOCKET");
  ::setenv("QUIRE_SNAPSHOT_BYTES", "0", 1);  // it only looks at models
  ::execl(program, "quire", "serve", nullptr);
  std::_Exit(1);
}

}  // namespace

OwnDaemon::OwnDaemon(pid_t pid, Endpoint endpoint, std::FILE* log)
    : pid_(pid), endpoint_(std::move(endpoint)), log_(log) {}

OwnDaemon::~OwnDaemon() {
  Stop();
  std::fclose(log_);
}

api::Result<std::unique_ptr<OwnDaemon>> OwnDaemon::Start() {
  std::error_code ec;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ec);
  std::FILE* const log = std::tmpfile();
  if (log == nullptr) return Failed("cannot create a temporary file");
  uint16_t port = 0;
  const int listening = Listen(port);
  if (listening < 0) {
    const auto error = Failed("cannot listen on loopback");
    std::fclose(log);
    return error;
  }
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) RunServe(program.c_str(), listening, ::fileno(log), parent);
  ::close(listening);
  if (pid < 0) {
    const auto error = Failed("cannot start a process");
    std::fclose(log);
    return error;
  }
  return std::unique_ptr<OwnDaemon>(new OwnDaemon(pid, {"127.0.0.1", port}, log));
}

void OwnDaemon::Stop() {
  if (pid_ == 0) return;
  ::kill(pid_, SIGTERM);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = 0;
}

std::string OwnDaemon::StopAndTellWhy() {
  Stop();
  std::string text, line;
  std::rewind(log_);
  for (int c = std::fgetc(log_); c != EOF; c = std::fgetc(log_)) {
    if (c != '\n') {
      line += static_cast<char>(c);
    } else if (!line.empty()) {
      text = std::exchange(line, {});
    }
  }
  return line.empty() ? text : line;
}

bool MayStartOwnDaemon(const Endpoint& endpoint) {
  if (!IsLocal(endpoint) || IsService()) return false;
  const auto answered = Client(endpoint).Get("/api/version");
  return !answered && answered.error().code == api::ErrorCode::kUnavailable &&
         answered.error().message.starts_with("could not connect");
}

}  // namespace quire::cli
