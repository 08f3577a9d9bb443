#include "runner/engine/prompt/load_request.h"

namespace quire::runner::engine {

weights::ModelSource SourceOf(const std::string& path, const std::vector<api::ipc::ModelFile>& files) {
  if (path.empty()) return {};
  std::vector<weights::ModelSource::Descriptor> descriptors;
  descriptors.reserve(files.size());
  for (const api::ipc::ModelFile& file : files) descriptors.push_back({file.name, file.fd});
  return {path, descriptors};
}

}  // namespace quire::runner::engine
