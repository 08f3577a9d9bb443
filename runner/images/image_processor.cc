#include "runner/images/image_processor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "runner/images/decode.h"
#include "runner/images/processor_families.h"
#include "runner/images/processor_keys.h"
#include "runner/weights/json_text.h"
#include "runner/weights/text.h"

namespace quire::runner::images {
namespace {

using nlohmann::ordered_json;
using weights::ModelFiles;

// GGUF files of Qwen-VL have the architecture of their text model (weights/dialects/architecture_name.cc).
struct Family {
  std::vector<std::string_view>
      names;  // model_type of config.json; projector types and architectures of GGUF
  ProcessorPtr (*read)(ProcessorKeys&);
};

const std::vector<Family>& Families() {
  static const std::vector<Family> kFamilies = {
      {{"gemma3"}, &ReadGemma3},
      {{"gemma4", "gemma4v"}, &ReadGemma4},
      {{"idefics3", "smolvlm"}, &ReadIdefics3},
      {{"pixtral", "mistral3"}, &ReadPixtral},
      {{"lfm2_vl", "lfm2-vl", "lfm2", "lfm2moe"}, &ReadLfm2Vl},
      {{"qwen2_vl", "qwen2_5_vl", "qwen2vl_merger", "qwen2.5vl_merger", "qwen2vl", "qwen25vl", "qwen2"},
       [](ProcessorKeys& keys) { return ReadQwenVl(keys, false); }},
      {{"qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "qwen3vl_merger", "qwen3vl", "qwen3vlmoe",
        "qwen35", "qwen35moe", "qwen3", "qwen3moe"},
       [](ProcessorKeys& keys) { return ReadQwenVl(keys, true); }},
  };
  return kFamilies;
}

api::Result<ProcessorPtr> ReadFamily(std::string_view name, const std::string& file, ProcessorKeys keys) {
  const auto family = std::ranges::find_if(Families(), [name](const Family& known) {
    return std::ranges::find(known.names, name) != known.names.end();
  });
  if (family == Families().end()) {
    return api::Fail(api::ErrorCode::kUnsupported,
                     fmt::format("{}: images of {} are not supported", file, weights::Quoted(name)));
  }
  auto processor = family->read(keys);
  if (keys.error()) return std::unexpected(*keys.error());
  return processor;
}

std::string_view TextOf(const ordered_json& object, std::string_view key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get_ref<const std::string&>()
                                                     : std::string_view();
}

// The keys with this prefix, without it.
ordered_json KeysBehind(const std::string& prefix, const ordered_json& metadata) {
  ordered_json keys = ordered_json::object();
  for (const auto& [key, value] : metadata.items()) {
    if (key.starts_with(prefix)) keys[key.substr(prefix.size())] = value;
  }
  return keys;
}

// A file of llama.cpp with a tower alone, or a model's own file with a tower in it, as Ollama writes it.
api::Result<ProcessorPtr> ReadGguf(const ModelFiles& files) {
  const ordered_json& metadata = files.config();
  std::string_view name = TextOf(metadata, "clip.vision.projector_type");
  if (name.empty()) name = TextOf(metadata, "clip.projector_type");
  const std::string architecture = files.architecture();
  std::string prefix = "clip.vision.";
  if (name.empty()) {
    name = architecture;
    prefix = architecture + ".vision.";
  }
  const ordered_json tower = KeysBehind(prefix, metadata);
  if (!tower.contains("block_count")) return nullptr;
  const auto vision = metadata.find("clip.has_vision_encoder");
  if (vision != metadata.end() && *vision == false) return nullptr;
  return ReadFamily(name, files.path(),
                    ProcessorKeys({{"tower", &tower, files.path()}, {"gguf", &metadata, files.path()}}));
}

// Text models are published with the configuration of the tower that was left out.
bool HasTower(const ModelFiles& files) {
  const auto vision = files.config().find("vision_config");
  if (vision == files.config().end() || !vision->is_object()) return false;
  return std::ranges::any_of(files.tensors(), [](const weights::Tensor& tensor) {
    return tensor.name.find("vision") != tensor.name.npos || tensor.name.find("visual") != tensor.name.npos;
  });
}

api::Result<ProcessorPtr> ReadHuggingFace(const ModelFiles& files) {
  if (!HasTower(files)) return nullptr;
  const auto text = files.processor_config();
  if (!text) return std::unexpected(text.error());
  const std::string file = files.path() + "/processor_config.json";
  ordered_json processor;
  if (!text->empty()) {
    auto parsed = weights::ParseJson(*text, file);
    if (!parsed) return std::unexpected(parsed.error());
    processor = std::move(*parsed);
  }
  // Models of the shape of LLaVA have the name of their tower.
  std::string_view name = TextOf(files.config(), "model_type");
  if (name == "llava") name = TextOf(files.config().at("vision_config"), "model_type");
  return ReadFamily(
      name, files.path(),
      ProcessorKeys({{"processor", &processor, file},
                     {"config", &files.config(), files.path() + "/config.json"},
                     {"tokenizer", &files.tokenizer_config(), files.path() + "/tokenizer_config.json"}}));
}

}  // namespace

PixelScale ClipScale() {
  return {.mean = {0.48145466, 0.4578275, 0.40821073}, .deviation = {0.26862954, 0.26130258, 0.27577711}};
}

std::string Repeat(std::string_view token, int32_t count) {
  std::string text;
  text.reserve(token.size() * static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) text += token;
  return text;
}

int64_t RoundToMultiple(int64_t length, int64_t unit) {
  const double units = std::nearbyint(static_cast<double>(length) / static_cast<double>(unit));
  return static_cast<int64_t>(units) * unit;
}

api::Result<Bitmap> ResizeWithin(const Bitmap& image, ImageSize size, Filter filter) {
  if (size.width > kPixelsMax || size.height > kPixelsMax || size.width * size.height > kPixelsMax) {
    return api::Fail(
        api::ErrorCode::kInvalidArgument,
        fmt::format(
            "the image has {} x {} pixels, which this model would see as {} x {}; at most {} pixels are "
            "prepared",
            image.width, image.height, size.width, size.height, kPixelsMax));
  }
  return Resize(image, static_cast<int32_t>(size.width), static_cast<int32_t>(size.height), filter);
}

ImageSize SmartSize(ImageSize size, int64_t unit, int64_t side_min, int64_t area_min, int64_t area_max) {
  ImageSize rounded{std::max(side_min, RoundToMultiple(size.width, unit)),
                    std::max(side_min, RoundToMultiple(size.height, unit))};
  const auto width = static_cast<double>(size.width), height = static_cast<double>(size.height);
  const auto step = static_cast<double>(unit);
  if (rounded.width * rounded.height > area_max) {
    const double scale = std::sqrt(width * height / static_cast<double>(area_max));
    const auto shrink = [&](double side) {
      return std::max(unit, static_cast<int64_t>(std::floor(side / scale / step)) * unit);
    };
    return {shrink(width), shrink(height)};
  }
  if (rounded.width * rounded.height < area_min) {
    const double scale = std::sqrt(static_cast<double>(area_min) / (width * height));
    const auto grow = [&](double side) {
      return static_cast<int64_t>(std::ceil(side * scale / step)) * unit;
    };
    return {grow(width), grow(height)};
  }
  return rounded;
}

api::Result<ProcessorPtr> ReadProcessor(const ModelFiles& model, const ModelFiles* projector) {
  if (projector != nullptr) return ReadGguf(*projector);
  auto processor = model.format() == weights::Format::kGguf ? ReadGguf(model) : ReadHuggingFace(model);
  if (!processor && processor.error().code == api::ErrorCode::kUnsupported) return nullptr;
  return processor;
}

}  // namespace quire::runner::images
