#include "runner/models/sentence_pooling.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "runner/weights/json_text.h"

namespace quire::runner::models {
namespace {

using PoolingJson = nlohmann::ordered_json;

constexpr const char* kPoolingFile = "1_Pooling/config.json";
constexpr std::pair<const char*, EncoderPooling> kPoolingNames[] = {
    {"cls", EncoderPooling::kFirst},
    {"mean", EncoderPooling::kMean},
    {"max", EncoderPooling::kMax},
    {"mean_sqrt_len_tokens", EncoderPooling::kMeanSqrt},
    {"weightedmean", EncoderPooling::kWeightedMean},
    {"lasttoken", EncoderPooling::kLast},
};
constexpr std::pair<const char*, EncoderPooling> kPoolingFlags[] = {
    {"pooling_mode_cls_token", EncoderPooling::kFirst},
    {"pooling_mode_mean_tokens", EncoderPooling::kMean},
    {"pooling_mode_max_tokens", EncoderPooling::kMax},
    {"pooling_mode_mean_sqrt_len_tokens", EncoderPooling::kMeanSqrt},
    {"pooling_mode_weightedmean_tokens", EncoderPooling::kWeightedMean},
    {"pooling_mode_lasttoken", EncoderPooling::kLast},
};

std::optional<EncoderPooling> PoolingOf(const PoolingJson& config) {
  std::optional<EncoderPooling> found;
  const auto mode = config.find("pooling_mode");
  if (mode != config.end() && mode->is_string()) {
    for (const auto& [name, pooling] : kPoolingNames) {
      if (*mode == name) found = pooling;
    }
    return found;
  }
  for (const auto& [flag, pooling] : kPoolingFlags) {
    const auto set = config.find(flag);
    if (set == config.end() || !set->is_boolean() || !set->get<bool>()) continue;
    if (found) return std::nullopt;  // several are concatenated
    found = pooling;
  }
  return found;
}

}  // namespace

std::optional<EncoderPooling> ReadPoolingFolder(ConfigReader& read) {
  const auto refuse = [&read](const std::string& reason) {
    read.Fail(reason);
    return std::nullopt;
  };
  const auto text = read.files().pooling_json();
  if (!text) return refuse(text.error().message);
  if (!*text) return std::nullopt;
  const auto config = weights::ParseJson(**text, kPoolingFile);
  if (!config) return refuse(config.error().message);
  const std::string file = kPoolingFile;
  if (!config->is_object()) return refuse(file + ": not an object");
  const auto pooling = PoolingOf(*config);
  if (!pooling) return refuse(file + ": not exactly one kind of pooling that is supported");
  for (const auto& member : config->items()) {
    const std::string& key = member.key();
    const bool flag = std::ranges::any_of(kPoolingFlags, [&](const auto& one) { return key == one.first; });
    const bool known = flag || key == "word_embedding_dimension" || key == "embedding_dimension" ||
                       key == "pooling_mode" || (key == "include_prompt" && member.value() == true);
    if (!known) return refuse(file + ": " + key.substr(0, 64) + " is not supported");
  }
  return pooling;
}

bool IsSavedWithoutHead(const weights::ModelFiles& files) {
  if (files.format() == weights::Format::kGguf) return false;
  for (const char* head : {"lm_head.weight", "language_model.lm_head.weight"}) {
    if (files.Find(head) != nullptr) return false;
  }
  const auto names = files.config().find("architectures");
  if (names == files.config().end() || !names->is_array() || names->size() != 1) return false;
  const PoolingJson& name = names->front();
  if (!name.is_string()) return false;
  const auto& of_class = name.get_ref<const std::string&>();
  const bool headless = of_class.ends_with("Model") && !of_class.ends_with("LMHeadModel");
  return headless || of_class.ends_with("ForSequenceClassification");
}

}  // namespace quire::runner::models
