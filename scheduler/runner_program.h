// The program of every runner: one file, opened once. A package that is upgraded puts another file in its
// place, which speaks another version of the link and computes other bits; the daemon that runs until it is
// restarted starts the file that it has opened.
#pragma once

#include <fcntl.h>

#include <cerrno>
#include <concepts>
#include <filesystem>
#include <memory>
#include <string>

#include "api/base/file_descriptor.h"

namespace quire::scheduler {

// Copies share the descriptor, which is close-on-exec.
class RunnerProgram {
 public:
  template <std::convertible_to<std::filesystem::path> Path>
  RunnerProgram(const Path& path)  // NOLINT(*-explicit-*): a path is a program
      : path_(path),
        file_(std::make_shared<api::FileDescriptor>(::open(path_.c_str(), O_RDONLY | O_CLOEXEC))),
        error_(file_->valid() ? 0 : errno) {
    // What may be executed and not read.
    if (error_ != EACCES) return;
    file_ = std::make_shared<api::FileDescriptor>(::open(path_.c_str(), O_PATH | O_CLOEXEC));
    error_ = file_->valid() ? 0 : errno;
  }

  // By which it was opened: what argv[0], errors and logs say.
  const std::filesystem::path& path() const { return path_; }
  int fd() const { return file_->get(); }
  int error() const { return error_; }  // errno of opening it; zero: it is open
  // By which this process reads the file that is open.
  std::filesystem::path open_path() const {
    return error_ == 0 ? std::filesystem::path("/proc/self/fd") / std::to_string(fd()) : path_;
  }

 private:
  std::filesystem::path path_;
  std::shared_ptr<const api::FileDescriptor> file_;
  int error_;
};

}  // namespace quire::scheduler
