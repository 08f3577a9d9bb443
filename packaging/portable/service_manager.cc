// The functions of libsystemd that the daemon uses, for portable programs: Debian has no static libsystemd,
// and a system without systemd does not have the shared one. The protocols are documented and stable:
// sd_notify(3), sd_listen_fds(3), sd_watchdog_enabled(3), and "Native Journal Protocol".
#define SD_JOURNAL_SUPPRESS_LOCATION
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-journal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace {

constexpr const char* kJournal = "/run/systemd/journal/socket";

// A number that is all of the variable; nothing if it is not set or is none.
std::optional<uint64_t> NumberOf(const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr || *text < '0' || *text > '9') return std::nullopt;
  char* end = nullptr;
  errno = 0;
  const uint64_t number = std::strtoull(text, &end, 10);
  if (errno != 0 || *end != '\0') return std::nullopt;
  return number;
}

bool IsForThisProcess(const char* variable) {
  return NumberOf(variable) == static_cast<uint64_t>(::getpid());
}

// A path, or a name that begins with '@' in the abstract namespace.
int SendTo(std::string_view address, msghdr message) {
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  if (address.size() < 2 || address.size() >= sizeof(to.sun_path) ||
      (address[0] != '/' && address[0] != '@')) {
    return -EAFNOSUPPORT;
  }
  std::memcpy(to.sun_path, address.data(), address.size());
  if (address[0] == '@') to.sun_path[0] = '\0';
  message.msg_name = &to;
  message.msg_namelen = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.size());
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -errno;
  ssize_t sent = -1;
  do {
    sent = ::sendmsg(fd, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  const int result = sent < 0 ? -errno : 1;
  ::close(fd);
  return result;
}

// "NAME=text" as a line; a value with line ends as its name, its length and itself.
void AppendField(std::string& entry, std::string_view field) {
  const size_t equals = field.find('=');
  if (field.find('\n') == std::string_view::npos || equals == std::string_view::npos) {
    entry += field;
  } else {
    const std::string_view value = field.substr(equals + 1);
    entry += field.substr(0, equals);
    entry += '\n';
    for (unsigned byte = 0; byte < 8; ++byte) {  // little endian
      entry += static_cast<char>(static_cast<uint64_t>(value.size()) >> (8 * byte) & 0xFF);
    }
    entry += value;
  }
  entry += '\n';
}

// An entry that no datagram holds goes as a sealed file in memory.
int SendAsFile(const std::string& entry) {
  const int fd = ::memfd_create("journal-entry", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return -errno;
  int result = -EIO;
  if (::write(fd, entry.data(), entry.size()) == static_cast<ssize_t>(entry.size()) &&
      ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) == 0) {
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    result = SendTo(kJournal, message);
  }
  ::close(fd);
  return result;
}

}  // namespace

extern "C" {

int sd_notify(int unset_environment, const char* state) {
  const char* const address = std::getenv("NOTIFY_SOCKET");
  if (address == nullptr) return 0;
  iovec piece{const_cast<char*>(state), std::strlen(state)};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  const int result = SendTo(address, message);
  if (unset_environment != 0) ::unsetenv("NOTIFY_SOCKET");
  return result;
}

int sd_watchdog_enabled(int unset_environment, uint64_t* microseconds) {
  const std::optional<uint64_t> interval = NumberOf("WATCHDOG_USEC");
  const bool ours = std::getenv("WATCHDOG_PID") == nullptr || IsForThisProcess("WATCHDOG_PID");
  if (unset_environment != 0) {
    ::unsetenv("WATCHDOG_USEC");
    ::unsetenv("WATCHDOG_PID");
  }
  if (!interval || *interval == 0 || !ours) return 0;
  *microseconds = *interval;
  return 1;
}

int sd_listen_fds_with_names(int unset_environment, char*** names) {
  const std::optional<uint64_t> count = NumberOf("LISTEN_FDS");
  const bool ours = IsForThisProcess("LISTEN_PID");
  const char* const said = std::getenv("LISTEN_FDNAMES");
  const std::string all = said == nullptr ? "" : said;
  if (unset_environment != 0) {
    for (const char* variable : {"LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"}) ::unsetenv(variable);
  }
  *names = nullptr;
  if (!count || !ours || *count == 0) return 0;
  constexpr uint64_t kSocketsMax = 1024;
  if (*count > kSocketsMax) return -EINVAL;
  const int sockets = static_cast<int>(*count);
  *names = static_cast<char**>(std::calloc(static_cast<size_t>(sockets) + 1, sizeof(char*)));
  if (*names == nullptr) return -ENOMEM;
  size_t begin = 0;
  for (int i = 0; i < sockets; ++i) {
    const int flags = ::fcntl(SD_LISTEN_FDS_START + i, F_GETFD);
    if (flags < 0) return -errno;
    ::fcntl(SD_LISTEN_FDS_START + i, F_SETFD, flags | FD_CLOEXEC);
    const size_t end = begin > all.size() ? begin : std::min(all.find(':', begin), all.size());
    const std::string name = begin >= all.size() ? "unknown" : all.substr(begin, end - begin);
    (*names)[i] = ::strdup(name.c_str());
    begin = end + 1;
  }
  return sockets;
}

int sd_journal_sendv(const iovec* fields, int count) {
  std::string entry;
  for (int i = 0; i < count; ++i) {
    AppendField(entry, {static_cast<const char*>(fields[i].iov_base), fields[i].iov_len});
  }
  iovec piece{entry.data(), entry.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  const int result = SendTo(kJournal, message);
  return result == -EMSGSIZE || result == -ENOBUFS ? SendAsFile(entry) : result;
}

}  // extern "C"
