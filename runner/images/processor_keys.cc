#include "runner/images/processor_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace quire::runner::images {
namespace {

const nlohmann::ordered_json* FindPath(const nlohmann::ordered_json* value, std::string_view path) {
  while (value != nullptr) {
    const std::string_view name = path.substr(0, path.find('/'));
    const auto member = value->is_object() ? value->find(name) : value->end();
    value = member == value->end() || member->is_null() ? nullptr : &*member;
    if (name.size() == path.size()) break;
    path.remove_prefix(name.size() + 1);
  }
  return value;
}

}  // namespace

ProcessorKeys::Found ProcessorKeys::Find(Names names) const {
  for (const std::string_view name : names) {
    const size_t slash = name.find('/');
    const auto document = std::ranges::find(documents_, name.substr(0, slash), &Document::name);
    if (document == documents_.end()) continue;
    const Json* const value = FindPath(document->json, name.substr(slash + 1));
    if (value != nullptr) return {name, &*document, value};
  }
  return {};
}

void ProcessorKeys::Refuse(const Found& found, std::string_view expected) {
  if (error_) return;
  const std::string_view key = found.name.substr(found.name.find('/') + 1);
  error_ = api::Error{api::ErrorCode::kBadModel,
                      fmt::format("{}: {} is not {}", found.document->file, key, expected)};
}

int32_t ProcessorKeys::Integer(Names names, int32_t fallback, int32_t min, int32_t max) {
  const Found found = Find(names);
  if (found.value == nullptr) return fallback;
  if (found.value->is_number_integer() && *found.value >= min && *found.value <= max) {
    return found.value->get<int32_t>();
  }
  Refuse(found, fmt::format("an integer from {} to {}", min, max));
  return fallback;
}

double ProcessorKeys::Number(Names names, double fallback, double min, double max) {
  const Found found = Find(names);
  if (found.value == nullptr) return fallback;
  if (found.value->is_number() && found.value->get<double>() >= min && found.value->get<double>() <= max) {
    return found.value->get<double>();
  }
  Refuse(found, fmt::format("a number from {} to {}", min, max));
  return fallback;
}

bool ProcessorKeys::Flag(Names names, bool fallback) {
  const Found found = Find(names);
  if (found.value == nullptr) return fallback;
  if (found.value->is_boolean()) return found.value->get<bool>();
  Refuse(found, "true or false");
  return fallback;
}

std::string ProcessorKeys::Text(Names names, std::string_view fallback) {
  const Found found = Find(names);
  if (found.value == nullptr) return std::string(fallback);
  const Json* const content = found.value->is_object() ? FindPath(found.value, "content") : found.value;
  if (content != nullptr && content->is_string() && !content->get_ref<const std::string&>().empty()) {
    return content->get<std::string>();
  }
  Refuse(found, "a text");
  return std::string(fallback);
}

std::array<double, 3> ProcessorKeys::Channels(Names names, const std::array<double, 3>& fallback) {
  const Found found = Find(names);
  if (found.value == nullptr) return fallback;
  std::array<double, 3> channels = fallback;
  const auto valid = [](const Json& number) {
    return number.is_number() && std::isfinite(number.get<double>());
  };
  if (valid(*found.value)) {
    channels.fill(found.value->get<double>());
    return channels;
  }
  if (found.value->is_array() && found.value->size() == 3 && std::ranges::all_of(*found.value, valid)) {
    for (size_t i = 0; i < 3; ++i) channels[i] = (*found.value)[i].get<double>();
    return channels;
  }
  Refuse(found, "a list of three numbers");
  return fallback;
}

PixelScale ProcessorKeys::Scale(const PixelScale& published) {
  PixelScale scale;
  scale.rescale = Flag({"processor/image_processor/do_rescale"}, published.rescale);
  scale.normalize = Flag({"processor/image_processor/do_normalize"}, published.normalize);
  scale.factor = Number({"processor/image_processor/rescale_factor"}, published.factor, 1e-6, 1e6);
  scale.mean = Channels({"processor/image_processor/image_mean", "tower/image_mean"}, published.mean);
  scale.deviation = Channels({"processor/image_processor/image_std", "tower/image_std"}, published.deviation);
  Require(std::ranges::none_of(scale.deviation, [](double value) { return value == 0; }),
          "image_std is not 0");
  return scale;
}

Filter ProcessorKeys::Resample(Filter fallback) {
  constexpr std::string_view kKey = "processor/image_processor/resample";
  constexpr int32_t kLanczos = 1, kBilinear = 2, kBicubic = 3;  // as Pillow counts
  Require(Flag({"processor/image_processor/do_resize"}, true), "do_resize is true");
  Require(!Flag({"processor/image_processor/do_center_crop"}, false), "do_center_crop is false");
  const Found found = Find({kKey});
  if (found.value == nullptr) return fallback;
  switch (Integer({kKey}, 0, 0, INT32_MAX)) {
    case kLanczos:
      return Filter::kLanczos;
    case kBilinear:
      return Filter::kBilinear;
    case kBicubic:
      return Filter::kBicubic;
    default:
      Refuse(found, "1 (Lanczos), 2 (bilinear) or 3 (bicubic)");
      return fallback;
  }
}

void ProcessorKeys::Require(bool holds, std::string_view what) {
  if (holds || error_) return;
  error_ = api::Error{api::ErrorCode::kBadModel,
                      fmt::format("{}: it must hold that {}", documents_.front().file, what)};
}

}  // namespace quire::runner::images
