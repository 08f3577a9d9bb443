// A load as the daemon asks for it: the files that it opened for this process, and the options.
#pragma once

#include <string>
#include <vector>

#include "api/ipc/messages.h"
#include "runner/engine/prompt/loaded_model.h"
#include "runner/weights/model_files.h"
#include "runner/weights/model_source.h"

namespace quire::runner::engine {

// The model at `path`, of which the daemon opened `files` for this process.
weights::ModelSource SourceOf(const std::string& path, const std::vector<api::ipc::ModelFile>& files);

// `request`: LoadModel or InspectModel. The projector's file is open afterwards.
template <class Request>
LoadOptions LoadOptionsOf(const Request& request) {
  LoadOptions options{.quantize_on_load = request.settings.quantize_on_load,
                      .kv_cache_type = request.settings.kv_cache_type,
                      .go_template = request.go_template,
                      .names = request.names,
                      .draft = SourceOf(request.draft_path, request.draft_files)};
  if (request.projector_path.empty()) return options;
  auto files = weights::Open(SourceOf(request.projector_path, request.projector_files));
  if (!files) {
    options.projector_error = files.error().message;
  } else {
    options.projector = *std::move(files);
  }
  return options;
}

}  // namespace quire::runner::engine
