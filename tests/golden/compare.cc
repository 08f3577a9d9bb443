#include "tests/golden/compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

namespace quire::runner::golden {
namespace {

// Keeps the activations of a pass.
class Recorder final : public models::ActivationHook {
 public:
  void Activation(const std::string& name, std::span<const float> values, int64_t) override {
    activations_[name].assign(values.begin(), values.end());
  }
  const std::map<std::string, std::vector<float>>& activations() const { return activations_; }

 private:
  std::map<std::string, std::vector<float>> activations_;
};

void CompareHidden(const GoldenPrompt& golden, const Recorder& recorder, size_t i,
                   std::vector<std::string>* lines) {
  for (const auto& [name, values] : golden.hidden) {
    const auto found = recorder.activations().find(name);
    const std::string difference = found == recorder.activations().end()
                                       ? "absent"
                                       : fmt::format("{:.3g}", MaxAbsDifference(found->second, values));
    lines->push_back(fmt::format("  p{}.{}: max_abs={}", i, name, difference));
  }
}

// Largest difference relative to the reference's largest value.
float RelativeDifference(std::span<const float> actual, std::span<const float> expected) {
  float scale = 1e-6F;
  for (const float value : expected) scale = std::max(scale, std::abs(value));
  return MaxAbsDifference(actual, expected) / scale;
}

double LogSumExp(std::span<const float> logits) {
  const float largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit - largest));
  return std::log(sum) + largest;
}

// Largest difference of rows [vocab] of logits.
float LogitDifference(const GoldenFile& golden, std::vector<float> actual, std::span<const float> expected) {
  const auto vocab = static_cast<size_t>(golden.vocab);
  for (size_t i = 0; golden.normalized && i < actual.size(); i += vocab) {
    const std::span<float> row = std::span(actual).subspan(i, vocab);
    const auto sum = static_cast<float>(LogSumExp(row));
    for (float& logit : row) logit -= sum;
  }
  return MaxAbsDifference(actual, expected);
}

// Whether the state is the keys or values of a layer that slides.
bool Slides(const models::Model& model, const std::string& name) {
  const auto bindings = model.cache_bindings();
  for (const models::CacheBinding& binding : bindings) {
    if (!name.starts_with(fmt::format("layer{}.", binding.decoder_layer)) || binding.recurrent) continue;
    if (name.ends_with(".k") || name.ends_with(".v"))
      return model.cache_layout().groups[binding.index].window > 0;
  }
  return false;
}

// Whether the state is of a layer whose chunk ends at `offset`: no later token sees any of its keys.
bool EndsItsChunk(const models::Model& model, const std::string& name, size_t offset) {
  const auto bindings = model.cache_bindings();
  for (const models::CacheBinding& binding : bindings) {
    if (!name.starts_with(fmt::format("layer{}.", binding.decoder_layer)) || binding.recurrent) continue;
    const cache::AttentionGroup& group = model.cache_layout().groups[binding.index];
    return group.chunked && offset % static_cast<size_t>(group.window) == 0;
  }
  return false;
}

// Whether the state is of a layer with latent attention: references dump the keys and values of its heads,
// which no cache has.
bool IsLatent(const models::Model& model, const std::string& name) {
  const auto bindings = model.cache_bindings();
  for (const models::CacheBinding& binding : bindings) {
    if (!name.starts_with(fmt::format("layer{}.", binding.decoder_layer)) || binding.recurrent) continue;
    return model.cache_layout().groups[binding.index].latent > 0;
  }
  return false;
}

// Whether the state is one that caches have in another form: raw keys of indexers; inputs and tokens of
// n-gram embeddings.
bool IsInAnotherForm(const std::string& name) {
  return name.ends_with(".index_k") || name.ends_with(".conv1") || name.ends_with(".conv2");
}

// Keys or values [heads, tokens, head_dim] of the cache's KV heads: some references repeat them for all query
// heads.
GoldenState OfKvHeads(const models::Model& model, const std::string& name, GoldenState state) {
  for (const models::CacheBinding& binding : model.cache_bindings()) {
    if (!name.starts_with(fmt::format("layer{}.", binding.decoder_layer)) || binding.recurrent) continue;
    const int64_t kv_heads = model.cache_layout().groups[binding.index].kv_heads;
    if ((!name.ends_with(".k") && !name.ends_with(".v")) || state.shape.front() % kv_heads != 0) continue;
    const auto heads = static_cast<size_t>(state.shape.front()), kept = static_cast<size_t>(kv_heads);
    const size_t size = state.values.size() / heads;
    for (size_t head = 0; head < kept; ++head) {
      const auto from = state.values.begin() + static_cast<ptrdiff_t>(head * (heads / kept) * size);
      std::copy_n(from, size, state.values.begin() + static_cast<ptrdiff_t>(head * size));
    }
    state.values.resize(kept * size);
    state.shape.front() = kv_heads;
  }
  return state;
}

// The newest tokens of the reference's keys or values [heads, tokens, head_dim], as many as there are in
// `size` numbers: some references keep what has slid out of a window.
std::vector<float> Newest(const GoldenState& state, size_t size) {
  const auto heads = static_cast<size_t>(state.shape.front());
  const size_t per_head = state.values.size() / heads, kept = std::min(size / heads, per_head);
  std::vector<float> newest;
  for (size_t head = 0; head < heads; ++head) {
    const auto end = state.values.begin() + static_cast<ptrdiff_t>((head + 1) * per_head);
    newest.insert(newest.end(), end - static_cast<ptrdiff_t>(kept), end);
  }
  return newest;
}

void CompareStates(GoldenRun& run, const GoldenPrompt& golden, size_t i, Comparison* result) {
  for (const auto& [offset, states] : golden.states) {
    const StateDump dump = run.States(std::span(golden.ids).first(offset));
    float largest = 0;
    size_t compared = 0;
    for (const auto& [name, stored] : states) {
      if (IsLatent(run.model(), name) || IsInAnotherForm(name) ||
          EndsItsChunk(run.model(), name, static_cast<size_t>(offset))) {
        continue;
      }
      ++compared;
      const GoldenState state = OfKvHeads(run.model(), name, stored);
      const auto found = dump.find(name);
      float difference = std::numeric_limits<float>::infinity();
      if (found != dump.end()) {
        const std::vector<float>& actual = found->second;
        difference = RelativeDifference(
            actual, Slides(run.model(), name) ? Newest(state, actual.size()) : state.values);
      }
      if (!std::isfinite(difference)) result->lines.push_back(fmt::format("p{}.{}: another shape", i, name));
      largest = std::max(largest, difference);
    }
    result->lines.push_back(
        fmt::format("p{}: {} states at {}, max relative {:.3g}", i, compared, offset, largest));
    result->max_state = std::max(result->max_state, largest);
    result->states += compared;
  }
}

void CompareRestored(GoldenRun& run, const GoldenPrompt& golden, size_t i, Comparison* result) {
  run.SetImages(golden.images.rows.empty() ? nullptr : &golden.images);
  const RestoreCheck check = run.RestoreAtEveryOffset(golden.ids);
  result->lines.push_back(fmt::format(
      "p{}: {} snapshots restored, {}", i, check.same + check.different.size(),
      check.different.empty() ? "bit-identical"
                              : fmt::format("NOT BIT-IDENTICAL at {}", fmt::join(check.different, " "))));
  result->bit_identical = result->bit_identical && check.different.empty();
}

// The prompt to restore inside of.
size_t PromptToRestore(const GoldenFile& golden) {
  size_t chosen = 0;
  for (size_t i = 0; i < golden.prompts.size(); ++i) {
    const auto weight = [&](size_t p) {
      return std::pair(!golden.prompts[p].states.empty(), golden.prompts[p].ids.size());
    };
    if (weight(i) > weight(chosen)) chosen = i;
  }
  return chosen;
}

}  // namespace

std::string Comparison::Verdict(float tolerance) const {
  return fmt::format("golden: {} max_abs={:.3g} greedy={}/{} states={} max_state={:.3g}",
                     pass(tolerance) ? "PASS" : "FAIL", max_abs, greedy_equal, greedy_total, states,
                     max_state);
}

std::string Rounding::Verdict() const {
  return fmt::format("rounding: {} mean |d log p|={:.4f} against {:.4f} of llama.cpp over {} tokens",
                     pass() ? "PASS" : "FAIL", mean, peer_mean, tokens);
}

Rounding CompareRounding(GoldenRun& run, const GoldenFile& golden, const CompareOptions& options) {
  Rounding result;
  double ours = 0, peers = 0;
  for (size_t i = 0; i < golden.prompts.size(); ++i) {
    const GoldenPrompt& prompt = golden.prompts[i];
    const auto last = static_cast<int32_t>(prompt.ids.size()) - 1;
    const PromptRun actual = run.RunPrompt(prompt.ids, {&last, 1}, prompt.greedy.size(), 0);
    const std::span<const float> exact = std::span(prompt.logits).last(static_cast<size_t>(golden.vocab));
    const double exact_sum = LogSumExp(exact), actual_sum = LogSumExp(actual.logits);
    for (const PeerLogprob& peer : prompt.peer) {
      const auto token = static_cast<size_t>(peer.token);
      const double expected = exact[token] - exact_sum;
      ours += std::abs(actual.logits[token] - actual_sum - expected);
      peers += std::abs(peer.logprob - expected);
    }
    result.tokens += prompt.peer.size();
    for (const size_t chunk : options.chunks) {
      const bool same = run.RunPrompt(prompt.ids, {&last, 1}, prompt.greedy.size(), chunk) == actual;
      result.lines.push_back(
          fmt::format("int8 p{}: chunks of {}: {}", i, chunk, same ? "bit-identical" : "NOT BIT-IDENTICAL"));
      result.bit_identical = result.bit_identical && same;
    }
  }
  result.mean = ours / static_cast<double>(std::max<size_t>(result.tokens, 1));
  result.peer_mean = peers / static_cast<double>(std::max<size_t>(result.tokens, 1));
  if (options.restore_every_offset) {
    const GoldenPrompt& prompt = golden.prompts[PromptToRestore(golden)];
    const RestoreCheck check = run.RestoreAtEveryOffset(prompt.ids);
    result.lines.push_back(
        fmt::format("int8: {} snapshots restored, {} different", check.same, check.different.size()));
    result.bit_identical = result.bit_identical && check.different.empty();
  }
  return result;
}

Comparison Compare(GoldenRun& run, const GoldenFile& golden, const CompareOptions& options) {
  Comparison result;
  for (size_t i = 0; i < golden.prompts.size(); ++i) {
    const GoldenPrompt& prompt = golden.prompts[i];
    run.SetImages(prompt.images.rows.empty() ? nullptr : &prompt.images);
    Recorder recorder;
    const bool hook = options.verbose && !prompt.hidden.empty();
    if (hook) run.RunPrompt(prompt.ids, {}, 0, 0, &recorder);
    const PromptRun actual = run.RunPrompt(prompt.ids, prompt.logit_rows, prompt.greedy.size(), 0);

    size_t equal = 0;
    for (size_t t = 0; t < prompt.greedy.size(); ++t) equal += actual.greedy[t] == prompt.greedy[t] ? 1 : 0;
    float difference = LogitDifference(golden, actual.logits, prompt.logits);
    // After another continuation the last logits answer another question.
    const bool comparable = equal == prompt.greedy.size() && !prompt.last_logits.empty();
    if (comparable)
      difference = std::max(difference, LogitDifference(golden, actual.last_logits, prompt.last_logits));
    std::string line = fmt::format("p{}: {} tokens, max_abs={:.3g} over {} positions{}, greedy {}/{}", i,
                                   prompt.ids.size(), difference, prompt.logit_rows.size(),
                                   comparable ? " and the end" : "", equal, prompt.greedy.size());
    for (const size_t chunk : options.chunks) {
      const bool same = run.RunPrompt(prompt.ids, prompt.logit_rows, prompt.greedy.size(), chunk) == actual;
      line += fmt::format(", chunks of {}: {}", chunk, same ? "bit-identical" : "NOT BIT-IDENTICAL");
      result.bit_identical = result.bit_identical && same;
    }
    result.lines.push_back(std::move(line));
    CompareStates(run, prompt, i, &result);
    if (hook) CompareHidden(prompt, recorder, i, &result.lines);
    result.max_abs = std::max(result.max_abs, difference);
    result.greedy_equal += equal;
    result.greedy_total += prompt.greedy.size();
  }
  const size_t restored = PromptToRestore(golden);
  if (options.restore_every_offset && golden.prompts[restored].ids.size() > 1) {
    CompareRestored(run, golden.prompts[restored], restored, &result);
  }
  return result;
}

}  // namespace quire::runner::golden
