#include "runner/weights/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace quire::runner::weights {

OutputFile::OutputFile(const std::filesystem::path& path, int error)
    : path_(path.string()),
      fd_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)),
      error_(fd_.valid() ? error : errno) {}

OutputFile::~OutputFile() {
  if (fd_.valid()) ::unlink(path_.c_str());
}

void OutputFile::Write(std::span<const std::byte> bytes) {
  while (!bytes.empty() && error_ == 0) {
    const ssize_t written = ::write(fd_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      error_ = errno;
      return;
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void OutputFile::Write(std::string_view text) { Write(std::as_bytes(std::span(text.data(), text.size()))); }

api::Result<void> OutputFile::Finish() {
  if (error_ == 0 && ::fsync(fd_.get()) != 0) error_ = errno;
  if (error_ == 0 && ::close(fd_.Release()) != 0) {
    error_ = errno;
    ::unlink(path_.c_str());
  }
  if (error_ == 0) return {};
  return api::Fail(api::ErrorCode::kInternal,
                   fmt::format("{}: {}", path_, std::generic_category().message(error_)));
}

}  // namespace quire::runner::weights
