// Where the files of a model are read from: their names on disk, or descriptors that were inherited from
// a process that may open them.
#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "runner/weights/mapped_file.h"

namespace quire::runner::weights {

template <class T>
concept PathLike = std::convertible_to<const T&, std::filesystem::path>;

// A GGUF file, or a Hugging Face directory. Files go by their names in the directory (of a GGUF file: the one
// that it lies in, for its other splits); the empty name is the GGUF file itself. Copies share the
// descriptors, which are closed with the last. Any thread.
class ModelSource {
 public:
  ModelSource() = default;  // of no model: empty()
  // On disk: every file is opened when it is asked for.
  template <PathLike Path>
  ModelSource(const Path& path) : path_(path) {}

  struct Descriptor {
    std::string name;
    int fd = -1;
  };
  // Descriptors that are open in this process, and nothing else; takes them over. `path`: for messages.
  ModelSource(std::filesystem::path path, const std::vector<Descriptor>& descriptors);

  bool empty() const { return path_.empty(); }
  bool is_directory() const;
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path PathOf(std::string_view name) const;  // for messages

  // As MappedFile::Open. What was not inherited does not exist (kNotFound).
  api::Result<MappedFile> Open(std::string_view name, uint64_t bytes_max = MappedFile::kNoLimit) const;

 private:
  class Inherited;

  std::filesystem::path path_;
  std::shared_ptr<const Inherited> inherited_;  // null: on disk
};

}  // namespace quire::runner::weights
