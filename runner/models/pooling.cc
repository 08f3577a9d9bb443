#include "runner/models/pooling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <iterator>
#include <numeric>
#include <string_view>

#include "runner/models/config_reader.h"
#include "runner/models/sentence_pooling.h"

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

// Vectors are of length 1 where a request does not ask for others; a LogitScore is of models that rank.
bool MakesNoOtherVector(const weights::SentenceModule& module) {
  constexpr std::string_view kPlainModules[] = {"Transformer", "Pooling", "Normalize", "LogitScore"};
  return std::ranges::find(kPlainModules, module.kind) != std::end(kPlainModules);
}

api::Result<Pooling> ReadDirectoryPooling(const weights::ModelFiles& files) {
  ConfigReader read(files);
  const auto modules = files.sentence_modules();
  if (!modules) return std::unexpected(modules.error());
  for (const weights::SentenceModule& module : *modules) {
    if (MakesNoOtherVector(module)) continue;
    read.Fail(fmt::format("modules.json: {} is not supported for a decoder", module.kind.substr(0, 64)));
  }
  const EncoderPooling pooling = ReadPoolingFolder(read).value_or(EncoderPooling::kLast);
  if (pooling != EncoderPooling::kMean && pooling != EncoderPooling::kFirst &&
      pooling != EncoderPooling::kLast) {
    read.Fail("1_Pooling/config.json: the pooling is neither mean, cls nor last token");
  }
  if (read.error()) return std::unexpected(*read.error());
  if (pooling == EncoderPooling::kMean) return Pooling::kMean;
  return pooling == EncoderPooling::kFirst ? Pooling::kFirst : Pooling::kLast;
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
  for (size_t row = 0; row < states.size(); row += sum_.size()) {
    for (size_t i = 0; i < sum_.size(); ++i) sum_[i] += static_cast<double>(states[row + i]);
  }
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
