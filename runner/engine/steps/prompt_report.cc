#include "runner/engine/steps/prompt_report.h"

#include <algorithm>
#include <utility>

namespace quire::runner::engine {

PromptReport::Rows PromptReport::RowsOf(int32_t computed, int32_t count) const {
  if (done() || !has_logprobs()) return {};
  const Rows rows{std::max(told_ - 1 - computed, 0), std::min(size_ - 1 - computed, count)};
  return rows.begin < rows.end ? rows : Rows{};
}

void PromptReport::Report(api::TokenLogprob token, DeltaOutbox& outbox) {
  unsent_.push_back(std::move(token));
  ++told_;
  if (unsent_.size() < kTokensPerDelta && !done()) return;
  api::TextDelta delta;
  delta.prompt = std::exchange(unsent_, {});
  outbox.AddDelta(std::move(delta));
}

}  // namespace quire::runner::engine
