#include "tests/golden/decoder_vectors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "runner/models/encoder_head.h"
#include "runner/models/pooling.h"
#include "runner/models/rank_head.h"
#include "runner/tokenizer/model_tokenizer.h"
#include "runner/weights/block_formats.h"
#include "runner/weights/model_files.h"
#include "tests/golden/golden_run.h"

namespace quire::runner::golden {
namespace {

std::optional<models::TokenId> WholeToken(const tokenizer::Tokenizer& tokenizer, std::string_view text) {
  const auto ids = tokenizer.Encode(text, tokenizer::SpecialTokens::kAsText);
  return ids && ids->size() == 1 ? std::optional(ids->front()) : std::nullopt;
}

api::Result<models::RankHead> RankHeadOf(const weights::ModelFiles& files,
                                         const tokenizer::Tokenizer& tokenizer) {
  if (models::RanksByAnswer(files)) return models::ReadRankHead(files);
  const auto yes = WholeToken(tokenizer, "yes"), no = WholeToken(tokenizer, "no");
  if (!yes || !no || files.format() == weights::Format::kGguf) {
    return api::Fail(api::ErrorCode::kBadModel, files.path() + ": does not rank");
  }
  return models::MakeRankHead(files, *yes, *no);
}

// The ids that the model's tokenizer gives, or nothing.
std::vector<models::TokenId> IdsOf(const tokenizer::Tokenizer& tokenizer, const models::RankHead* rank,
                                   const EncoderCase& one) {
  if (rank == nullptr) {
    auto ids = tokenizer.Encode(one.text, tokenizer::SpecialTokens::kAsText);
    if (!ids) return {};
    if (tokenizer.add_bos()) ids->insert(ids->begin(), *tokenizer.bos_id());
    if (tokenizer.add_eos()) ids->push_back(*tokenizer.eos_id());
    return *std::move(ids);
  }
  const models::RankPrompt prompt = rank->prompt.only_with_instruction ? models::RankPrompt() : rank->prompt;
  const std::array<tokenizer::Segment, 5> parts = {{{prompt.before, true},
                                                    {one.text, false},
                                                    {prompt.between, true},
                                                    {one.second, false},
                                                    {prompt.after, true}}};
  auto ids = tokenizer.EncodeSegments(parts);
  return ids ? *std::move(ids) : std::vector<models::TokenId>();
}

double CosineOf(std::span<const float> a, std::span<const float> b) {
  double dot = 0, left = 0, right = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    dot += double{a[i]} * double{b[i]};
    left += double{a[i]} * double{a[i]};
    right += double{b[i]} * double{b[i]};
  }
  return left > 0 && right > 0 ? dot / std::sqrt(left * right) : 0;
}

}  // namespace

api::Result<EncoderComparison> CompareDecoderVectors(const std::filesystem::path& model,
                                                     const EncoderGolden& golden, ThreadPool& pool) {
  const auto files = weights::Open(model);
  if (!files) return std::unexpected(files.error());
  const auto tokenizer = tokenizer::LoadTokenizer(**files);
  if (!tokenizer) return std::unexpected(tokenizer.error());
  std::optional<models::RankHead> rank;
  if (golden.ranks) {
    auto head = RankHeadOf(**files, **tokenizer);
    if (!head) return std::unexpected(head.error());
    rank = *std::move(head);
  } else if (const auto pooling = models::ReadPooling(**files); pooling != models::Pooling::kLast) {
    return api::Fail(api::ErrorCode::kBadModel, model.string() + ": does not embed by its last token");
  }
  size_t longest = 1;
  for (const EncoderCase& one : golden.cases) longest = std::max(longest, one.ids.size());
  auto run = GoldenRun::Open(model, pool, 1, static_cast<int64_t>(longest) + 1);
  if (!run) return std::unexpected(run.error());
  if (run->model().vocab_size() != golden.vocab) {
    return api::Fail(api::ErrorCode::kBadModel, model.string() + ": not the model of this golden");
  }
  EncoderComparison result;
  for (const weights::Tensor& tensor : (*files)->tensors()) {
    result.quantized |= weights::BlockElements(tensor.type) > 1;
  }
  std::vector<std::pair<float, float>> scores;
  for (const EncoderCase& one : golden.cases) {
    if (!one.text.empty() || !one.second.empty()) {
      const std::vector<models::TokenId> ids = IdsOf(**tokenizer, rank ? &*rank : nullptr, one);
      const bool equal = ids == one.ids;
      ++result.ids_total;
      result.ids_equal += equal ? 1 : 0;
      if (!equal) {
        const auto [ours, theirs] = std::ranges::mismatch(ids, one.ids);
        result.lines.push_back(
            fmt::format("{}: other token ids than the reference's, {} instead of {}, from {} on", one.name,
                        ids.size(), one.ids.size(), ours - ids.begin()));
      }
    }
    std::vector<float> state;
    run->AfterPrompt(one.ids, [&](const cache::StepView&, std::span<const float> hidden) {
      state.assign(hidden.begin(), hidden.end());
    });
    float most = 0;
    if (one.hidden.size() >= state.size()) {
      const auto last = std::span(one.hidden).last(state.size());
      most = MaxAbsDifference(state, last);
      if (rank) result.AddCosine(CosineOf(state, last));
    }
    std::string line = fmt::format("{}: {} tokens", one.name, one.ids.size());
    if (!one.embedding.empty() && !rank) {
      const auto vector = models::EncoderHead::Finish(state, 0, true);
      most = std::max(most, MaxAbsDifference(vector, one.embedding));
      result.AddCosine(CosineOf(vector, one.embedding));
      ++result.vectors;
    }
    if (rank && one.score.size() == 1) {
      const float score = rank->Score(state);
      result.max_score = std::max(result.max_score, std::abs(score - one.score.front()));
      scores.emplace_back(score, one.score.front());
      ++result.scores;
      line += fmt::format(", score {:.6f} ({:.6f})", score, one.score.front());
    }
    result.max_abs = std::max(result.max_abs, most);
    result.lines.push_back(fmt::format("{}, max_abs={:.1e}", line, most));
  }
  result.order = SameOrder(scores, result.quantized ? 0.05F : 2e-3F);
  return result;
}

}  // namespace quire::runner::golden
