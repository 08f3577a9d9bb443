// How much text a model brings: its template, system text, messages, parameters and licenses. A request
// copies its system text and messages, whoever sends it.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <string>

#include "api/base/error.h"
#include "api/base/request_memory.h"

namespace quire::server {

inline constexpr size_t kModelTextBytesMax = size_t{4} << 20;

// In memory: a message takes 200 bytes beside its text.
template <class Model>
size_t TextBytes(const Model& model) {
  size_t bytes = model.go_template.size() + model.system.size() + model.parameters_json.size();
  for (const std::string& license : model.licenses) bytes += license.size();
  return bytes + api::HeapBytes(model.messages);
}

template <class Model>
api::Result<void> CheckText(const Model& model, api::ErrorCode code) {
  const size_t bytes = TextBytes(model);
  if (bytes <= kModelTextBytesMax) return {};
  return api::Fail(
      code, fmt::format("the texts of the model (template, system text, messages, parameters, licenses) "
                        "take {} bytes; the limit is {} bytes",
                        bytes, kModelTextBytesMax));
}

}  // namespace quire::server
