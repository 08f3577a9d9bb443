#include "runner/engine/process/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "runner/models/encoder.h"
#include "runner/models/model.h"
#include "runner/weights/model_files.h"
#include "runner/weights/packed_model.h"
#include "runner/weights/quantize_model.h"

namespace quire::runner::engine {
namespace {

bool Names(std::string_view names, std::string_view one) {
  while (!names.empty()) {
    const std::string_view name = names.substr(0, names.find('|'));
    if (name == one) return true;
    names.remove_prefix(std::min(name.size() + 1, names.size()));
  }
  return false;
}

api::Result<void> CheckArchitecture(const weights::ModelSource& directory) {
  const auto files = weights::Open(directory);
  if (!files) return std::unexpected(files.error());
  if (models::IsEncoder(**files)) return {};
  const std::string name = (*files)->architecture();
  for (const models::Architecture& architecture : models::SupportedArchitectures()) {
    if (Names(architecture.hugging_face, name)) return {};
  }
  return api::Fail(
      api::ErrorCode::kBadModel,
      fmt::format("config.json: models of the type \"{}\" are not supported", name.substr(0, 100)));
}

}  // namespace

api::Result<void> WriteConverted(const weights::ModelSource& from, weights::OutputFile to,
                                 const std::string& quantization, int threads,
                                 const std::function<void(float)>& on_progress) {
  if (!from.is_directory()) {
    return weights::QuantizeGguf(from, quantization, std::move(to), threads, on_progress);
  }
  if (auto checked = CheckArchitecture(from); !checked) return checked;
  return weights::PackHuggingFace(from, std::move(to), on_progress);
}

}  // namespace quire::runner::engine
