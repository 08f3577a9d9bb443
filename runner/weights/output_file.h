// A file that is written once, from its beginning to its end.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "api/base/error.h"
#include "api/base/file_descriptor.h"
#include "runner/weights/model_source.h"

namespace quire::runner::weights {

// Created at once, so that a process that may then open nothing can write it. Unless it is finished, it is
// removed in the end; a process that may not remove files leaves it to who asked for it. The first error
// stays, and is that of Finish(). One thread.
class OutputFile {
 public:
  // Which must not exist.
  template <PathLike Path>
  OutputFile(const Path& path) : OutputFile(std::filesystem::path(path), 0) {}
  OutputFile(OutputFile&&) = default;
  ~OutputFile();

  void Write(std::span<const std::byte> bytes);
  void Write(std::string_view text);
  bool failed() const { return error_ != 0; }
  // The bytes are on the disk then. kInternal with the path and the system's reason.
  api::Result<void> Finish();

 private:
  OutputFile(const std::filesystem::path& path, int error);

  std::string path_;
  api::FileDescriptor fd_;
  int error_ = 0;
};

}  // namespace quire::runner::weights
