#include "tests/golden/fingerprint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "runner/models/encoder.h"
#include "runner/weights/model_files.h"
#include "runner/weights/quantize_on_load.h"
#include "tests/golden/golden_run.h"

namespace quire::runner::golden {
namespace {

constexpr size_t kPromptTokens = 37, kGreedyTokens = 11;

std::vector<models::TokenId> PromptOf(int32_t vocab) {
  std::mt19937 random(5);
  std::vector<models::TokenId> ids(kPromptTokens);
  std::ranges::generate(
      ids, [&] { return static_cast<models::TokenId>(random() % static_cast<uint32_t>(vocab)); });
  return ids;
}

// FNV-1a of the bytes.
std::string HashOf(std::span<const float> values) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const std::byte byte : std::as_bytes(values))
    hash = (hash ^ std::to_integer<uint64_t>(byte)) * 0x100000001b3;
  return fmt::format("{:016x}", hash);
}

api::Result<std::string> OfEncoder(const std::shared_ptr<const weights::ModelFiles>& files,
                                   ThreadPool& pool) {
  auto encoder = models::LoadEncoder(files);
  if (!encoder) return std::unexpected(encoder.error());
  models::EncoderBatch batch;
  batch.tokens = PromptOf((*encoder)->vocab_size());
  batch.types.resize(batch.tokens.size());
  batch.row_begin = {0, static_cast<int32_t>(kPromptTokens)};
  std::vector<float> hidden(kPromptTokens * static_cast<size_t>((*encoder)->hidden_size()));
  (*encoder)->Forward(batch, pool, hidden);
  return "hidden " + HashOf(hidden);
}

}  // namespace

api::Result<std::string> Fingerprint(const std::filesystem::path& model, ThreadPool& pool,
                                     api::KvType kv_type, std::string_view quantize) {
  auto files = weights::Open(model);
  if (files && models::IsEncoder(**files) && !quantize.empty())
    files = weights::QuantizeOnLoad(*std::move(files), quantize, 1);
  if (!files) return std::unexpected(files.error());
  if (models::IsEncoder(**files)) return OfEncoder(*files, pool);
  auto run = GoldenRun::Open(model, pool, 1, static_cast<int64_t>(kPromptTokens + kGreedyTokens + 1), kv_type,
                             quantize);
  if (!run) return std::unexpected(run.error());
  const std::vector<models::TokenId> ids = PromptOf(run->model().vocab_size());
  std::vector<int32_t> rows(ids.size());
  std::iota(rows.begin(), rows.end(), 0);
  const PromptRun result = run->RunPrompt(ids, rows, kGreedyTokens, 0);
  return fmt::format("logits {} end {} greedy {}", HashOf(result.logits), HashOf(result.last_logits),
                     fmt::join(result.greedy, " "));
}

}  // namespace quire::runner::golden
