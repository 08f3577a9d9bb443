#include "runner/weights/model_source.h"

#include <fmt/format.h>

#include <cerrno>
#include <functional>
#include <map>
#include <system_error>
#include <utility>

#include "api/base/file_descriptor.h"

namespace quire::runner::weights {

class ModelSource::Inherited {
 public:
  explicit Inherited(const std::vector<Descriptor>& descriptors) {
    for (const auto& [name, fd] : descriptors) fds_.emplace(name, fd);
  }

  // -1: there is none of that name.
  int Find(std::string_view name) const {
    const auto found = fds_.find(name);
    return found == fds_.end() ? -1 : found->second.get();
  }

 private:
  std::map<std::string, api::FileDescriptor, std::less<>> fds_;
};

ModelSource::ModelSource(std::filesystem::path path, const std::vector<Descriptor>& descriptors)
    : path_(std::move(path)), inherited_(std::make_shared<const Inherited>(descriptors)) {}

bool ModelSource::is_directory() const {
  if (inherited_) return inherited_->Find("") < 0;
  std::error_code error;
  return std::filesystem::is_directory(path_, error);
}

std::filesystem::path ModelSource::PathOf(std::string_view name) const {
  if (name.empty()) return path_;
  return (is_directory() ? path_ : path_.parent_path()) / name;
}

api::Result<MappedFile> ModelSource::Open(std::string_view name, uint64_t bytes_max) const {
  std::string path = PathOf(name).string();
  if (!inherited_) return MappedFile::Open(path, bytes_max);
  const int fd = inherited_->Find(name);
  if (fd >= 0) return MappedFile::Map(fd, std::move(path), bytes_max);
  return api::Fail(api::ErrorCode::kNotFound,
                   fmt::format("{}: {}", path, std::generic_category().message(ENOENT)));
}

}  // namespace quire::runner::weights
