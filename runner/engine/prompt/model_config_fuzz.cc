// libFuzzer: one byte that says which format, then JSON as that format's configuration of a model without
// tensors. It is described and loaded; nothing may come of it but errors.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "runner/models/model.h"
#include "runner/weights/json_text.h"
#include "runner/weights/model_description.h"
#include "runner/weights/model_files.h"

namespace {

using nlohmann::ordered_json;
using quire::runner::weights::Format;
using quire::runner::weights::Tensor;

class ConfigOnly final : public quire::runner::weights::ModelFiles {
 public:
  ConfigOnly(Format format, ordered_json config) : format_(format), config_(std::move(config)) {}

  Format format() const override { return format_; }
  std::string path() const override { return "fuzz"; }
  std::string architecture() const override {
    const auto found = config_.find(format_ == Format::kGguf ? "general.architecture" : "model_type");
    return found != config_.end() && found->is_string() ? found->get<std::string>() : std::string();
  }
  const Tensor* Find(std::string_view) const override { return nullptr; }
  const std::vector<Tensor>& tensors() const override { return tensors_; }
  const ordered_json& config() const override { return config_; }
  const ordered_json& generation_config() const override { return none_; }
  const ordered_json& tokenizer_config() const override { return none_; }
  const std::string& tokenizer_json() const override { return no_text_; }
  std::string chat_template() const override { return {}; }
  std::vector<int32_t> end_of_generation_ids() const override { return {}; }

 private:
  const Format format_;
  const ordered_json config_;
  const ordered_json none_;
  const std::string no_text_;
  const std::vector<Tensor> tensors_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const Format format = data[0] % 2 == 0 ? Format::kGguf : Format::kHuggingFace;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  auto config = quire::runner::weights::ParseJson(text, "fuzz");
  if (!config || !config->is_object()) return 0;
  const auto files = std::make_shared<const ConfigOnly>(format, *std::move(config));
  quire::runner::weights::Describe(*files, true);
  if (quire::runner::models::LoadModel(files)) std::abort();
  return 0;
}
