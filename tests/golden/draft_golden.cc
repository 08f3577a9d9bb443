#include "tests/golden/draft_golden.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "cache/layout.h"
#include "runner/kernels/attention.h"
#include "runner/models/draft_model.h"
#include "runner/weights/model_files.h"
#include "tests/golden/golden_arrays.h"

namespace quire::runner::golden {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxVocab = 1 << 24;

std::optional<models::TokenId> Id(const Json& object, const char* key) {
  if (!object.is_object() || !object.contains(key)) return std::nullopt;
  const auto ids = Ids(Json::array({object.at(key)}), kMaxVocab);
  return ids ? std::optional(ids->front()) : std::nullopt;
}

DraftRound ReadRound(const Json& json, size_t i, Arrays& arrays) {
  DraftRound round;
  const auto name = [&](const std::string& part) { return fmt::format("p{}.{}", i, part); };
  const auto ids = Ids(json.is_object() ? json.value("ids", Json()) : Json(), kMaxVocab);
  const Json steps = json.is_object() ? json.value("steps", Json::array()) : Json::array();
  if (!ids || ids->empty() || !steps.is_array()) arrays.Fail(fmt::format("prompt {} is incomplete", i));
  if (arrays.error()) return round;
  round.ids = *ids;
  round.target_hidden = arrays.Floats(name("target_last_hidden"));
  round.sliding_k = arrays.Floats(name("shared_k.sliding_attention"));
  round.sliding_v = arrays.Floats(name("shared_v.sliding_attention"));
  round.full_k = arrays.Floats(name("shared_k.full_attention"));
  round.full_v = arrays.Floats(name("shared_v.full_attention"));
  for (size_t s = 0; s < steps.size(); ++s) {
    const auto token = Id(steps[s], "input_token"), draft = Id(steps[s], "draft_token");
    if (!token || !draft) arrays.Fail(fmt::format("step {} of prompt {} is incomplete", s, i));
    DraftStep step{.token = token.value_or(0),
                   .draft = draft.value_or(0),
                   .embedding = arrays.Floats(name(fmt::format("step{}.inputs_embeds", s))),
                   .logits = arrays.Floats(name(fmt::format("step{}.logits", s))),
                   .next_hidden = arrays.Floats(name(fmt::format("step{}.projected_state", s)))};
    step.embedding.resize(round.target_hidden.size());  // the hidden state comes second
    round.steps.push_back(std::move(step));
  }
  return round;
}

// Recorded keys and values, as the cache of the target would show them.
class RecordedKeys final : public cache::StepView {
 public:
  RecordedKeys(const models::Model& target, const DraftRound& round)
      : layout_(target.cache_layout()), offset_(std::ssize(round.ids)), groups_(layout_.groups.size()) {
    for (const models::CacheBinding& binding : target.cache_bindings()) {
      const bool slides = layout_.groups[binding.index].window > 0;
      Fill(binding, slides ? round.sliding_k : round.full_k, slides ? round.sliding_v : round.full_v);
    }
  }

  size_t sequences() const override { return 1; }
  cache::Position offset(size_t) const override { return offset_; }
  int32_t new_tokens(size_t) const override { return 0; }
  std::span<const cache::PageView> Pages(size_t, size_t group) const override { return groups_[group].views; }
  std::byte* Slot(size_t) const override { return nullptr; }

 private:
  struct Group {
    std::vector<std::vector<std::byte>> pages;
    std::vector<cache::PageView> views;
  };

  void Map(size_t index, cache::Position first) {
    Group& group = groups_[index];
    group.pages.clear();
    group.views.clear();
    for (cache::Position p = first; p < offset_; p += layout_.page_tokens - p % layout_.page_tokens) {
      const cache::Position end = std::min(offset_, p - p % layout_.page_tokens + layout_.page_tokens);
      group.pages.emplace_back(cache::PageBytes(layout_, index));
      group.views.push_back(
          {.base = group.pages.back().data(), .first = p, .tokens = static_cast<int32_t>(end - p)});
    }
  }

  void Fill(const models::CacheBinding& binding, std::span<const float> k, std::span<const float> v) {
    const cache::AttentionGroup& group = layout_.groups[binding.index];
    const auto dim = static_cast<size_t>(group.head_dim), heads = static_cast<size_t>(group.kv_heads);
    const size_t tokens = k.size() / dim / heads;
    const cache::Position first = offset_ - static_cast<cache::Position>(tokens);
    Map(binding.index, first);
    for (size_t head = 0; head < heads; ++head) {
      for (size_t t = 0; t < tokens; ++t) {
        const cache::Position p = first + static_cast<cache::Position>(t);
        const auto page = static_cast<size_t>(p / layout_.page_tokens - first / layout_.page_tokens);
        std::byte* const base = groups_[binding.index].pages[page].data();
        const auto row = static_cast<int32_t>(p % layout_.page_tokens);
        const auto of_head = static_cast<int32_t>(head);
        const size_t from = (head * tokens + t) * dim;
        kernels::WriteKeys(layout_, binding.index, k.subspan(from, dim),
                           base + cache::KeyOffset(layout_, binding.index, binding.layer, of_head), row, 1);
        kernels::WriteValue(layout_, binding.index, v.subspan(from, dim),
                            base + cache::ValueOffset(layout_, binding.index, binding.layer, of_head), row);
      }
    }
  }

  const cache::Layout& layout_;
  const cache::Position offset_;
  std::vector<Group> groups_;
};

// Largest difference of logits where the reference's clusters were: everywhere else it has one value below
// all.
float ClusterDifference(std::span<const float> actual, std::span<const float> expected) {
  const float floor = std::ranges::min(expected);
  float largest = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] > floor)
      largest = std::max(largest, MaxAbsDifference(actual.subspan(i, 1), expected.subspan(i, 1)));
  }
  return largest;
}

class DraftComparison {
 public:
  DraftComparison(GoldenRun& target, models::DraftModel& draft, bool clustered, ThreadPool& pool)
      : target_(target), draft_(draft), clustered_(clustered), pool_(pool) {}

  void Round(const DraftRound& round, size_t i) {
    const RecordedKeys recorded(target_.model(), round);
    Steps(round, recorded, round.target_hidden, fmt::format("p{}: on recorded keys", i));
    int32_t shortest_window = INT32_MAX;
    for (const cache::AttentionGroup& group : target_.model().cache_layout().groups) {
      if (group.window > 0) shortest_window = std::min(shortest_window, group.window);
    }
    // Behind a longer prompt the reference shows its draft model one token more of each window.
    if (std::ssize(round.ids) >= shortest_window) return;
    target_.AfterPrompt(round.ids, [&](const cache::StepView& view, std::span<const float> hidden) {
      const float difference = MaxAbsDifference(hidden, round.target_hidden);
      result_.max_abs = std::max(result_.max_abs, difference);
      Steps(round, view, hidden,
            fmt::format("p{}: on the target's keys, hidden max_abs={:.3g}", i, difference));
    });
  }
  Comparison result() && { return std::move(result_); }

 private:
  void Steps(const DraftRound& round, const cache::StepView& view, std::span<const float> first_hidden,
             const std::string& what) {
    std::vector<float> hidden(first_hidden.begin(), first_hidden.end());
    float largest = 0;
    size_t equal = 0;
    for (const DraftStep& step : round.steps) {
      std::vector<float> logits(step.logits.size()), embedding(hidden.size());
      target_.model().Embed(std::span(&step.token, 1), pool_, embedding);
      draft_.Draft(view, pool_, step.token, hidden, logits);
      largest = std::max(
          {largest, MaxAbsDifference(embedding, step.embedding), MaxAbsDifference(hidden, step.next_hidden),
           clustered_ ? MaxAbsDifference(logits, step.logits) : ClusterDifference(logits, step.logits)});
      equal += Argmax(logits) == step.draft ? 1 : 0;
    }
    result_.max_abs = std::max(result_.max_abs, largest);
    if (clustered_) {
      result_.greedy_equal += equal;
      result_.greedy_total += round.steps.size();
    }
    result_.lines.push_back(fmt::format("{}: {} drafts, max_abs={:.3g}, {}", what, round.steps.size(),
                                        largest,
                                        clustered_ ? fmt::format("tokens {}/{}", equal, round.steps.size())
                                                   : std::string("a head over all tokens")));
  }

  GoldenRun& target_;
  models::DraftModel& draft_;
  const bool clustered_;
  ThreadPool& pool_;
  Comparison result_;
};

}  // namespace

bool IsDraftGolden(const std::filesystem::path& directory) {
  const auto json = ReadGoldenJson(directory / "golden.json");
  return json && json->is_object() && json->contains("draft_of");
}

api::Result<DraftGolden> ReadDraftGolden(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "golden.json";
  const auto json = ReadGoldenJson(path);
  if (!json) return std::unexpected(json.error());
  auto arrays = Arrays::Open(directory / "golden.safetensors");
  if (!arrays) return std::unexpected(arrays.error());
  DraftGolden golden;
  const Json target = json->is_object() ? json->value("draft_of", Json()) : Json();
  const Json prompts = json->is_object() ? json->value("prompts", Json()) : Json();
  if (!target.is_string() || !prompts.is_array())
    arrays->Fail("draft_of or prompts is missing in golden.json");
  if (!arrays->error()) golden.target = target.get<std::string>();
  for (size_t i = 0; i < prompts.size() && !arrays->error(); ++i) {
    golden.rounds.push_back(ReadRound(prompts[i], i, *arrays));
  }
  if (arrays->error()) return std::unexpected(*arrays->error());
  return golden;
}

api::Result<Comparison> CompareDrafts(const std::filesystem::path& model, const std::filesystem::path& target,
                                      const DraftGolden& golden, ThreadPool& pool) {
  size_t longest = 0;
  for (const DraftRound& round : golden.rounds) longest = std::max(longest, round.ids.size());
  auto run = GoldenRun::Open(target, pool, 1, static_cast<int64_t>(longest));
  if (!run) return std::unexpected(run.error());
  auto files = weights::Open(model);
  if (!files) return std::unexpected(files.error());
  const bool clustered = (*files)->format() == weights::Format::kHuggingFace;  // converters drop the clusters
  auto draft = models::LoadDraftModel(std::move(*files), run->model());
  if (!draft) return std::unexpected(draft.error());
  const auto hidden = static_cast<size_t>(run->model().hidden_size());
  const auto vocab = static_cast<size_t>(run->model().vocab_size());
  DraftComparison comparison(*run, **draft, clustered, pool);
  for (size_t i = 0; i < golden.rounds.size(); ++i) {
    const DraftRound& round = golden.rounds[i];
    const bool fits =
        round.target_hidden.size() == hidden && std::ranges::all_of(round.steps, [&](const DraftStep& step) {
          return step.logits.size() == vocab && step.next_hidden.size() == hidden &&
                 static_cast<size_t>(std::max(step.token, step.draft)) < vocab;
        });
    if (!fits) return api::Fail(api::ErrorCode::kBadModel, fmt::format("prompt {} is of another target", i));
    comparison.Round(round, i);
  }
  return std::move(comparison).result();
}

}  // namespace quire::runner::golden
