#include "runner/models/encoder_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "runner/kernels/encoder_ops.h"
#include "runner/kernels/portable_math.h"
#include "runner/models/decoder_config.h"
#include "runner/weights/json_text.h"

namespace quire::runner::models {
namespace {

using nlohmann::ordered_json;

void ActivateHead(ThreadPool& pool, HeadActivation activation, std::span<float> x) {
  switch (activation) {
    case HeadActivation::kIdentity:
      return;
    case HeadActivation::kTanh:
      for (float& value : x) value = kernels::Tanh(value);
      return;
    case HeadActivation::kGelu:
      return kernels::GeluErf(pool, x);
    case HeadActivation::kRelu:
      return kernels::Relu(pool, x);
    case HeadActivation::kSilu:
      for (float& value : x) value = value / (1 + kernels::Exp(-value));
      return;
  }
}

// x: one state or several.
std::vector<float> RunLinear(ThreadPool& pool, const Linear& linear, std::span<const float> x) {
  kernels::QuantizedActivations quantized;
  const int64_t rows = std::ssize(x) / linear.weight.in;
  std::vector<float> y(static_cast<size_t>(rows * linear.weight.out));
  linear.Run(pool, {x, rows, quantized}, y);
  return y;
}

std::vector<double> Summed(std::span<const float> states, size_t width, bool weighted) {
  std::vector<double> sum(width);
  for (size_t row = 0; row < states.size(); row += width) {
    const size_t place = row / width + 1;
    const double weight = weighted ? static_cast<double>(place) : 1;
    for (size_t i = 0; i < width; ++i) sum[i] += weight * static_cast<double>(states[row + i]);
  }
  return sum;
}

std::vector<float> PoolStates(EncoderPooling pooling, std::span<const float> states, size_t width) {
  const size_t tokens = states.size() / width;
  const auto row = [&](size_t at) {
    const auto values = states.subspan(at * width, width);
    return std::vector<float>(values.begin(), values.end());
  };
  const auto scaled = [&](const std::vector<double>& sum, double by) {
    std::vector<float> values;
    values.reserve(width);
    for (const double value : sum) values.push_back(static_cast<float>(value / by));
    return values;
  };
  const auto count = static_cast<double>(tokens);
  switch (pooling) {
    case EncoderPooling::kNone:
    case EncoderPooling::kFirst:
      return row(0);
    case EncoderPooling::kLast:
      return row(tokens - 1);
    case EncoderPooling::kMean:
      return scaled(Summed(states, width, false), count);
    case EncoderPooling::kMeanSqrt:
      return scaled(Summed(states, width, false), std::sqrt(count));
    case EncoderPooling::kWeightedMean:
      return scaled(Summed(states, width, true), count * (count + 1) / 2);
    case EncoderPooling::kMax: {
      std::vector<float> top = row(0);
      for (size_t at = width; at < states.size(); at += width) {
        for (size_t i = 0; i < width; ++i) top[i] = std::max(top[i], states[at + i]);
      }
      return top;
    }
  }
  return {};
}

void BindDense(ConfigReader& read, TensorBinder& bind, const weights::SentenceModule& module, int32_t width,
               EncoderHead& head) {
  const std::string path = module.path + "/config.json";
  const auto config = weights::ParseJson(module.config_json.empty() ? "{}" : module.config_json, path);
  if (!config) return read.Fail(config.error().message);
  const auto number = [&](const char* key) {
    const auto found = config->find(key);
    const auto value = found == config->end() ? std::nullopt : ConfigReader::WholeNumber(*found);
    if (value && *value > 0 && *value <= kMaxWidth) return static_cast<int32_t>(*value);
    read.Fail(fmt::format("{}: {} is not a width", path, key));
    return 1;
  };
  const int32_t in = number("in_features"), out = number("out_features");
  if (in != width) read.Fail(fmt::format("{}: in_features is {}, not {}", path, in, width));
  bool bias = true;
  std::string activation = "torch.nn.modules.activation.Tanh";
  for (const auto& member : config->items()) {
    const std::string& key = member.key();
    const ordered_json& value = member.value();
    if (key == "bias" && value.is_boolean()) {
      bias = value.get<bool>();
    } else if (key == "activation_function" && value.is_string()) {
      activation = value.get<std::string>();
    } else if (key.starts_with("module_")
                   ? value != "sentence_embedding"
                   : key != "in_features" && key != "out_features" && !value.is_null()) {
      return read.Fail(fmt::format("{}: {} is not supported", path, key.substr(0, 64)));
    }
  }
  if (read.error()) return;
  DenseLayer layer;
  layer.activation = ReadHeadActivation(read, activation.substr(activation.rfind('.') + 1), path);
  layer.linear = bind.Named(module.path + "/")
                     .BindLinear({"linear", ""}, out, in, bias ? Bias::kPresent : Bias::kAbsent);
  head.dense.push_back(std::move(layer));
}

void ReadModuleList(ConfigReader& read, TensorBinder& bind, int32_t hidden, EncoderHead& head) {
  head.pooling = ReadPoolingFolder(read).value_or(head.pooling);
  const auto modules = read.files().sentence_modules();
  if (!modules) return read.Fail(modules.error().message);
  bool normalized = false;
  for (const weights::SentenceModule& module : *modules) {
    const bool dense = module.kind == "Dense";
    if (dense && normalized) return read.Fail("modules.json: Dense behind Normalize is not supported");
    if (dense) BindDense(read, bind, module, head.width(hidden), head);
    if (module.kind == "Pooling" && module.path != "1_Pooling") {
      return read.Fail("modules.json: Pooling is not in 1_Pooling");
    }
    normalized |= module.kind == "Normalize";
    if (!dense && module.kind != "Transformer" && module.kind != "Pooling" && module.kind != "Normalize") {
      return read.Fail(fmt::format("modules.json: {} is not supported", module.kind.substr(0, 64)));
    }
  }
}

void ReadGgufHead(ConfigReader& read, TensorBinder& bind, EncoderHead& head, int32_t hidden) {
  constexpr EncoderPooling kTypes[] = {EncoderPooling::kMean, EncoderPooling::kFirst, EncoderPooling::kLast};
  const int64_t type = read.Integer({"", "pooling_type"}, 0, 4, 1);
  if (type < 1 || type > 3) {
    return read.Fail(fmt::format("{} {} is not supported without a classification head",
                                 read.Name({"", "pooling_type"}), type));
  }
  head.pooling = kTypes[type - 1];
  int32_t width = hidden;
  for (const char* name : {"dense_2", "dense_3"}) {
    const std::string weight = fmt::format("{}.weight", name), out = fmt::format("{}_feat_out", name),
                      in = fmt::format("{}_feat_in", name);
    const weights::Tensor* tensor = read.files().Find(weight);
    if (tensor == nullptr) continue;
    const int32_t to = read.Small({"", out}, 1, kMaxWidth, std::clamp<int64_t>(tensor->rows(), 1, kMaxWidth));
    if (read.Small({"", in}, 1, kMaxWidth, width) != width) read.Fail(fmt::format("{} is not {}", in, width));
    head.dense.push_back({.linear = bind.Outside().BindLinear({"", name}, to, width, Bias::kIfStored)});
    width = to;
  }
}

}  // namespace

HeadActivation ReadHeadActivation(ConfigReader& read, const std::string& name, const std::string& key) {
  constexpr std::pair<const char*, HeadActivation> kNames[] = {
      {"Identity", HeadActivation::kIdentity}, {"Tanh", HeadActivation::kTanh},
      {"tanh", HeadActivation::kTanh},         {"GELU", HeadActivation::kGelu},
      {"gelu", HeadActivation::kGelu},         {"ReLU", HeadActivation::kRelu},
      {"relu", HeadActivation::kRelu},         {"SiLU", HeadActivation::kSilu},
      {"silu", HeadActivation::kSilu}};
  for (const auto& [known, activation] : kNames) {
    if (name == known) return activation;
  }
  read.Fail(fmt::format("{}: the activation \"{}\" is not supported", key, name.substr(0, 60)));
  return HeadActivation::kIdentity;
}

void ReadEncoderHead(ConfigReader& read, TensorBinder& bind, int32_t hidden, EncoderHead& head) {
  if (read.gguf()) return ReadGgufHead(read, bind, head, hidden);
  ReadModuleList(read, bind, hidden, head);
}

int32_t EncoderHead::width(int32_t hidden) const {
  return dense.empty() ? hidden : static_cast<int32_t>(dense.back().linear.weight.out);
}

std::vector<float> EncoderHead::Pool(ThreadPool& pool, std::span<const float> states, int32_t hidden) const {
  assert(!states.empty());
  std::vector<float> vector = PoolStates(pooling, states, static_cast<size_t>(hidden));
  for (const DenseLayer& layer : dense) {
    vector = RunLinear(pool, layer.linear, vector);
    ActivateHead(pool, layer.activation, vector);
  }
  return vector;
}

std::vector<float> EncoderHead::Finish(std::vector<float> vector, int32_t dimensions, bool normalize) {
  if (dimensions > 0) vector.resize(std::min(vector.size(), static_cast<size_t>(dimensions)));
  if (!normalize) return vector;
  double squares = 0;
  for (const float value : vector) squares += static_cast<double>(value) * static_cast<double>(value);
  const double factor = squares > 0 ? 1 / std::sqrt(squares) : 0;
  for (float& value : vector) value = static_cast<float>(static_cast<double>(value) * factor);
  return vector;
}

float EncoderHead::Score(ThreadPool& pool, std::span<const float> states, int32_t hidden) const {
  const auto width = static_cast<size_t>(hidden);
  std::vector<float> each;
  if (score.late) {
    each = RunLinear(pool, score.dense, states);
    ActivateHead(pool, score.activation, each);
  }
  std::vector<float> state =
      PoolStates(score.pooling, score.late ? std::span<const float>(each) : states, width);
  if (score.dense && !score.late) {
    state = RunLinear(pool, score.dense, state);
    ActivateHead(pool, score.activation, state);
  }
  if (score.norm) score.norm.Run(pool, state, state);
  return RunLinear(pool, score.out, state).front();
}

}  // namespace quire::runner::models
