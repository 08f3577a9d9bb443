#include "runner/weights/scratch_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "api/base/file_descriptor.h"
#include "api/base/mutex.h"

namespace quire::runner::weights {
namespace {

// Gives the file that many bytes of disk space; zero or errno. Not posix_fallocate(), which looks at the file
// system with calls that a confined runner may not make.
int Reserve(int fd, size_t bytes) {
  int result = 0;
  do {
    result = ::fallocate(fd, 0, 0, static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result == 0) return 0;
  if (errno != EOPNOTSUPP) return errno;
  const std::vector<char> zeros(size_t{1} << 20);
  for (size_t at = 0; at < bytes;) {
    const ssize_t written =
        ::pwrite(fd, zeros.data(), std::min(zeros.size(), bytes - at), static_cast<off_t>(at));
    if (written < 0 && errno != EINTR) return errno;
    at += written > 0 ? static_cast<size_t>(written) : 0;
  }
  return 0;
}

// An empty file without a name, or an errno.
struct Created {
  api::FileDescriptor file;
  int error = 0;
};

Created Create() {
  std::string name = TemporaryFolder() / "quire-weights-XXXXXX";
  Created created{.file = api::FileDescriptor(::mkostemp(name.data(), O_CLOEXEC))};
  if (created.file.valid()) {
    ::unlink(name.c_str());
  } else {
    created.error = errno;
  }
  return created;
}

api::Mutex created_mutex;
// Nothing: each is created when it is needed.
std::optional<std::vector<Created>> created_files GUARDED_BY(created_mutex);

Created NextCreated() {
  const api::MutexLock lock(created_mutex);
  if (!created_files) return Create();
  if (created_files->empty()) return {.file = {}, .error = EPERM};
  Created next = std::move(created_files->back());
  created_files->pop_back();
  return next;
}

}  // namespace

void CreateScratchFiles(size_t count) {
  const api::MutexLock lock(created_mutex);
  created_files.emplace();
  for (size_t i = 0; i < count; ++i) created_files->push_back(Create());
}

void CloseScratchFiles() {
  const api::MutexLock lock(created_mutex);
  if (created_files) created_files->clear();
}

std::filesystem::path TemporaryFolder() {
  const char* const folder = std::getenv("TMPDIR");
  return folder != nullptr && *folder != '\0' ? folder : "/tmp";
}

api::Result<ScratchFile> ScratchFile::Make(size_t bytes) {
  ScratchFile scratch;
  const std::filesystem::path folder = TemporaryFolder();
  const auto fail = [&](int error) {
    return api::Fail(api::ErrorCode::kInternal,
                     fmt::format("{}: cannot create a file of {} bytes for quantized weights: {}",
                                 folder.string(), bytes, std::generic_category().message(error)));
  };
  const Created created = NextCreated();
  if (!created.file.valid()) return fail(created.error);
  if (const int error = Reserve(created.file.get(), bytes); error != 0) return fail(error);
  void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, created.file.get(), 0);
  if (data == MAP_FAILED) return fail(errno);
  scratch.data_ = {static_cast<std::byte*>(data), bytes};
  return scratch;
}
ScratchFile::ScratchFile(ScratchFile&& other) noexcept : data_(std::exchange(other.data_, {})) {}

ScratchFile& ScratchFile::operator=(ScratchFile&& other) noexcept {
  std::swap(data_, other.data_);
  return *this;
}

ScratchFile::~ScratchFile() {
  if (!data_.empty()) ::munmap(data_.data(), data_.size());
}

}  // namespace quire::runner::weights
