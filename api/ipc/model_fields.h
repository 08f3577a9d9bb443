// The fields of the messages about a runner's model, as message_fields.h has those of the others.
#pragma once

#include "api/base/kv_type.h"
#include "api/ipc/message_fields.h"
#include "api/ipc/messages.h"

namespace quire::api::ipc {

template <Is<ModelFile> M, class V>
void VisitFields(M& m, V& visit) {
  visit("name", m.name);
  visit("fd", m.fd, kFirstModelFd, kLastModelFd);
}
template <Is<RunnerSettings> M, class V>
void VisitFields(M& m, V& visit) {
  visit("threads", m.threads, 0, kThreadsMax);
  visit("cache_bytes", m.cache_bytes, 0);
  visit("weights_budget", m.weights_budget, 0);
  visit("memory_bytes", m.memory_bytes, 0);
  visit("prefix_cache", m.prefix_cache);
  visit("model_sampling", m.model_sampling);
  visit("quantize_on_load", m.quantize_on_load);
  visit("kv_cache_type", m.kv_cache_type, KvType::kI16);
  visit("state_cache_type", m.state_cache_type, KvType::kQ8_0);
}
template <Is<PromptNames> M, class V>
void VisitFields(M& m, V& visit) {
  visit("renderer", m.renderer);
  visit("parser", m.parser);
}
template <Is<LoadModel> M, class V>
void VisitFields(M& m, V& visit) {
  visit("path", m.path);
  visit("files", m.files, kModelFilesMax);
  visit("settings", m.settings);
  visit("go_template", m.go_template);
  visit("names", m.names);
  visit("draft_path", m.draft_path);
  visit("draft_files", m.draft_files, kModelFilesMax);
  visit("projector_path", m.projector_path);
  visit("projector_files", m.projector_files, kModelFilesMax);
  visit("context_min", m.context_min, 0);
}
template <Is<LoadApproved> M, class V>
void VisitFields(M& m, V& visit) {
  visit("cache_bytes", m.cache_bytes, 0);
}
template <Is<InspectModel> M, class V>
void VisitFields(M& m, V& visit) {
  visit("path", m.path);
  visit("files", m.files, kModelFilesMax);
  visit("verbose", m.verbose);
  visit("go_template", m.go_template);
  visit("names", m.names);
  visit("check_load", m.check_load);
  visit("draft_path", m.draft_path);
  visit("draft_files", m.draft_files, kModelFilesMax);
  visit("projector_path", m.projector_path);
  visit("projector_files", m.projector_files, kModelFilesMax);
  visit("settings", m.settings);
  visit("num_ctx", m.num_ctx, 0);
}
template <Is<ConvertModel> M, class V>
void VisitFields(M& m, V& visit) {
  visit("from", m.from);
  visit("files", m.files, kModelFilesMax);
  visit("to", m.to);
  visit("quantization", m.quantization);
  visit("threads", m.threads, 0, kThreadsMax);
}

}  // namespace quire::api::ipc
