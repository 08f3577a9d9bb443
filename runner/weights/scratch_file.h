// An unnamed file in the folder for temporary files that is mapped whole and goes with this. What is in
// memory of it is the kernel's to drop.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "api/base/error.h"

namespace quire::runner::weights {

// The folder for temporary files: $TMPDIR, or /tmp. It is not looked up.
std::filesystem::path TemporaryFolder();

// Creates the files of the next `count` calls of ScratchFile::Make() now, and there are no more then: for a
// process that soon may open nothing. Where that fails, so do those calls. Any thread.
void CreateScratchFiles(size_t count);
// Closes those of them that were not used.
void CloseScratchFiles();

class ScratchFile {
 public:
  // Its space is reserved, so that a full disk is an error here (kInternal) and no signal later.
  static api::Result<ScratchFile> Make(size_t bytes);
  ScratchFile() = default;
  ScratchFile(ScratchFile&& other) noexcept;
  ScratchFile& operator=(ScratchFile&& other) noexcept;
  ~ScratchFile();

  std::span<std::byte> data() const { return data_; }

 private:
  std::span<std::byte> data_;
};

}  // namespace quire::runner::weights
