#include "runner/golden/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace quire::runner::golden {
namespace {

// Keeps the activations of a pass.
class Recorder final : public models::Probe {
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

}  // namespace

std::string Comparison::Verdict(float tolerance) const {
  return fmt::format("golden: {} max_abs={:.3g} greedy={}/{}", pass(tolerance) ? "PASS" : "FAIL", max_abs,
                     greedy_equal, greedy_total);
}

Comparison Compare(GoldenRun& run, const GoldenFile& golden, const CompareOptions& options) {
  Comparison result;
  for (size_t i = 0; i < golden.prompts.size(); ++i) {
    const GoldenPrompt& prompt = golden.prompts[i];
    Recorder recorder;
    const bool probe = options.verbose && !prompt.hidden.empty();
    if (probe) run.RunPrompt(prompt.ids, {}, 0, 0, &recorder);
    const PromptRun actual = run.RunPrompt(prompt.ids, prompt.logit_rows, prompt.greedy.size(), 0);

    size_t equal = 0;
    for (size_t t = 0; t < prompt.greedy.size(); ++t) equal += actual.greedy[t] == prompt.greedy[t] ? 1 : 0;
    float difference = MaxAbsDifference(actual.logits, prompt.logits);
    // After another continuation the last logits answer another question.
    const bool comparable = equal == prompt.greedy.size() && !prompt.last_logits.empty();
    if (comparable)
      difference = std::max(difference, MaxAbsDifference(actual.last_logits, prompt.last_logits));
    std::string line = fmt::format("p{}: {} tokens, max_abs={:.3g} over {} positions{}, greedy {}/{}", i,
                                   prompt.ids.size(), difference, prompt.logit_rows.size(),
                                   comparable ? " and the end" : "", equal, prompt.greedy.size());
    if (options.chunk != 0) {
      const bool same =
          run.RunPrompt(prompt.ids, prompt.logit_rows, prompt.greedy.size(), options.chunk) == actual;
      line += fmt::format(", chunks of {}: {}", options.chunk, same ? "same bits" : "DIFFERENT BITS");
      result.same_bits = result.same_bits && same;
    }
    result.lines.push_back(std::move(line));
    if (probe) CompareHidden(prompt, recorder, i, &result.lines);
    result.max_abs = std::max(result.max_abs, difference);
    result.greedy_equal += equal;
    result.greedy_total += prompt.greedy.size();
  }
  return result;
}

}  // namespace quire::runner::golden
