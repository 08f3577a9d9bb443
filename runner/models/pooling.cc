#include "runner/models/pooling.h"

#include <fmt/format.h>

#include <cassert>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>

#include "runner/models/config_reader.h"
#include "runner/weights/json_text.h"

namespace quire::runner::models {
namespace {

api::Result<Pooling> ReadGgufPooling(const weights::ModelFiles& files) {
  ConfigReader read(files);
  constexpr ConfigKey kKey = {"", "pooling_type"};
  const int64_t type = read.Integer(kKey, 0, 4, 0);
  if (type == 4) read.Fail(fmt::format("{} 4, ranking, is not supported", read.Name(kKey)));
  if (read.error()) return std::unexpected(*read.error());
  constexpr Pooling kTypes[] = {Pooling::kLast, Pooling::kMean, Pooling::kFirst, Pooling::kLast,
                                Pooling::kLast};
  return kTypes[type];
}

api::Result<Pooling> ReadDirectoryPooling(const weights::ModelFiles& files) {
  const auto text = files.pooling_json();
  if (!text) return std::unexpected(text.error());
  if (!*text) return Pooling::kLast;
  const std::string path = files.path() + "/1_Pooling/config.json";
  const auto config = weights::ParseJson(**text, path);
  if (!config) return std::unexpected(config.error());
  const auto on = [&](const char* key) {
    const auto found = config->is_object() ? config->find(key) : config->end();
    return found != config->end() && found->is_boolean() && found->get<bool>();
  };
  if (on("pooling_mode_mean_tokens")) return Pooling::kMean;
  if (on("pooling_mode_cls_token")) return Pooling::kFirst;
  if (on("pooling_mode_lasttoken")) return Pooling::kLast;
  return api::Fail(api::ErrorCode::kBadModel,
                   fmt::format("{}: the pooling is neither mean, cls nor last token", path));
}

}  // namespace

api::Result<Pooling> ReadPooling(const weights::ModelFiles& files) {
  return files.format() == weights::Format::kGguf ? ReadGgufPooling(files) : ReadDirectoryPooling(files);
}

Pooler::Pooler(Pooling pooling, int32_t hidden, int64_t tokens)
    : pooling_(pooling), tokens_(tokens), sum_(static_cast<size_t>(hidden)) {
  assert(tokens >= 1);
}

std::vector<int32_t> Pooler::RowsOf(int64_t count) const {
  std::vector<int32_t> rows;
  if (pooling_ == Pooling::kMean) {
    rows.resize(static_cast<size_t>(count));
    std::iota(rows.begin(), rows.end(), 0);
  } else {
    const int64_t wanted = pooling_ == Pooling::kFirst ? 0 : tokens_ - 1;
    if (wanted >= seen_ && wanted < seen_ + count) rows.push_back(static_cast<int32_t>(wanted - seen_));
  }
  return rows;
}

void Pooler::Add(int64_t count, std::span<const float> states) {
  assert(states.size() == RowsOf(count).size() * sum_.size());
  for (size_t i = 0; i < states.size(); ++i) sum_[i % sum_.size()] += static_cast<double>(states[i]);
  seen_ += count;
}

std::vector<float> Pooler::Finish(int32_t dimensions, bool normalize) const {
  assert(seen_ == tokens_);
  assert(static_cast<size_t>(dimensions) <= sum_.size());
  const auto kept = std::span(sum_).first(dimensions > 0 ? static_cast<size_t>(dimensions) : sum_.size());
  double factor = pooling_ == Pooling::kMean ? 1 / static_cast<double>(tokens_) : 1;
  if (normalize) {
    double squares = 0;
    for (const double value : kept) squares += value * value;
    factor = squares > 0 ? 1 / std::sqrt(squares) : 0;
  }
  std::vector<float> pooled;
  pooled.reserve(kept.size());
  for (const double value : kept) pooled.push_back(static_cast<float>(value * factor));
  return pooled;
}

}  // namespace quire::runner::models
