// The files of a model, opened for a runner, which may open none. They are not read here: what is in them is
// the runner's to parse.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "api/base/error.h"
#include "api/base/file_descriptor.h"

namespace quire::scheduler {

// A file by the name that api::ipc::ModelFile gives it.
struct OpenFile {
  std::string name;
  api::FileDescriptor fd;  // for reading, close-on-exec; a regular file
  std::string version;     // tells it from its successors: device, inode, size and times
};

// The existing files of a GGUF model with its splits, or of a Hugging Face directory; links are followed. For
// a directory nothing has to be there: what is missing is the runner's to say. kNotFound when the path does
// not exist; kBadModel "FILE: reason" for a file that may not be read or is none, and for more files than a
// runner takes; kUnavailable when this process can open no more. May block on a slow file system.
api::Result<std::vector<OpenFile>> OpenModelFiles(const std::filesystem::path& model);

}  // namespace quire::scheduler
