// The owner of an open file descriptor.
#pragma once

#include <unistd.h>

#include <utility>

namespace quire::api {

// Closed on destruction. May be handed between threads, not shared.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.Release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      Reset();
      fd_ = other.Release();
    }
    return *this;
  }
  ~FileDescriptor() { Reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int Release() { return std::exchange(fd_, -1); }
  void Reset() {
    if (valid()) ::close(Release());
  }

 private:
  int fd_ = -1;
};

}  // namespace quire::api
