#include "tests/golden/decoder_vectors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "runner/models/pooling.h"
#include "runner/models/rank_head.h"
#include "runner/tokenizer/frame_tokens.h"
#include "runner/tokenizer/model_tokenizer.h"
#include "runner/tokenizer/text_frame.h"
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

// The text or the pair as the model's tokenizer frames it, or nothing.
std::vector<models::TokenId> FramedIds(const tokenizer::Tokenizer& tokenizer, const EncoderCase& one) {
  auto ids = tokenizer.Encode(one.text, tokenizer::SpecialTokens::kAsText);
  if (!ids) return {};
  if (!one.second.empty()) {
    auto second = tokenizer.Encode(one.second, tokenizer::SpecialTokens::kAsText);
    if (!second) return {};
    auto framed = tokenizer::FramePair(tokenizer, *std::move(ids), *std::move(second), SIZE_MAX);
    return framed ? std::move(framed->ids) : std::vector<models::TokenId>();
  }
  if (tokenizer.add_bos()) ids->insert(ids->begin(), *tokenizer.bos_id());
  if (tokenizer.add_eos()) ids->push_back(*tokenizer.eos_id());
  return *std::move(ids);
}

// The ids that the model's tokenizer gives, or nothing.
std::vector<models::TokenId> IdsOf(const tokenizer::Tokenizer& tokenizer, const models::RankHead* rank,
                                   const EncoderCase& one) {
  const bool pairs = !tokenizer.pair_frame().items.empty();
  if (rank == nullptr || (rank->prompt.only_with_instruction && pairs)) return FramedIds(tokenizer, one);
  const models::RankPrompt prompt = rank->prompt.only_with_instruction ? models::RankPrompt() : rank->prompt;
  const std::array<tokenizer::Segment, 5> parts = {{{prompt.before, true},
                                                    {one.text, false},
                                                    {prompt.between, true},
                                                    {one.second, false},
                                                    {prompt.after, true}}};
  auto ids = tokenizer.EncodeSegments(parts);
  return ids ? *std::move(ids) : std::vector<models::TokenId>();
}

// The vector of a text whose states are [tokens, hidden].
std::vector<float> Pooled(models::Pooling pooling, std::span<const float> states, size_t hidden,
                          bool normalize) {
  const size_t tokens = states.size() / hidden;
  models::Pooler pooler(pooling, static_cast<int32_t>(hidden), static_cast<int64_t>(tokens));
  std::vector<float> chosen;
  for (const int32_t row : pooler.RowsOf(static_cast<int64_t>(tokens))) {
    const auto state = states.subspan(static_cast<size_t>(row) * hidden, hidden);
    chosen.insert(chosen.end(), state.begin(), state.end());
  }
  pooler.Add(static_cast<int64_t>(tokens), chosen);
  return pooler.Finish(0, normalize);
}

}  // namespace

api::Result<EncoderComparison> CompareDecoderVectors(const std::filesystem::path& model,
                                                     const EncoderGolden& golden, ThreadPool& pool) {
  const auto files = weights::Open(model);
  if (!files) return std::unexpected(files.error());
  const auto tokenizer = tokenizer::LoadTokenizer(**files);
  if (!tokenizer) return std::unexpected(tokenizer.error());
  std::optional<models::RankHead> rank;
  models::Pooling pooling = models::Pooling::kLast;
  if (golden.ranks) {
    auto head = RankHeadOf(**files, **tokenizer);
    if (!head) return std::unexpected(head.error());
    rank = *std::move(head);
  } else {
    const auto said = models::ReadPooling(**files);
    if (!said) return std::unexpected(said.error());
    pooling = *said;
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
    const std::vector<float> states = run->HiddenStates(one.ids);
    const size_t hidden = states.size() / one.ids.size();
    const std::span<const float> last = std::span(states).last(hidden);
    float most = 0;
    if (!one.hidden.empty()) {
      // The vectors of all tokens, or of the last one.
      const std::span<const float> recorded = one.hidden;
      ++result.states;
      most = MaxAbsDifference(std::span(states).last(std::min(states.size(), recorded.size())), recorded);
      if (rank && recorded.size() >= hidden) result.AddCosine(Cosine(last, recorded.last(hidden)));
    }
    std::string line = fmt::format("{}: {} tokens", one.name, one.ids.size());
    if (!one.embedding.empty() && !rank) {
      const auto vector = Pooled(pooling, states, hidden, IsNormalized(one.embedding));
      most = std::max(most, MaxAbsDifference(vector, one.embedding));
      result.AddCosine(vector.size() == one.embedding.size() ? Cosine(vector, one.embedding) : 0);
      ++result.vectors;
    }
    if (rank && one.score.size() == 1) {
      const float score = rank->Score(last);
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
