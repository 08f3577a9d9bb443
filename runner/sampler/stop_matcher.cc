#include "runner/sampler/stop_matcher.h"

#include <utility>

#include "runner/sampler/byte_automaton.h"

namespace quire::runner::sampler {

StopMatcher::StopMatcher(std::vector<std::string> stop_strings)
    : strings_(std::move(stop_strings)), node_(ByteAutomaton::kRoot) {}

StopMatcher::Emission StopMatcher::Feed(std::string_view text) {
  if (stopped_) return {};
  if (!automaton_) automaton_ = std::make_shared<const ByteAutomaton>(std::exchange(strings_, {}));
  const std::string_view held = automaton_->Path(node_);
  // The first `length` bytes of what was held and the text. Bytes that stay held are not touched again.
  const auto first = [&](size_t length) {
    std::string emitted(held.substr(0, length));
    return emitted.append(text.substr(0, length - emitted.size()));
  };
  for (size_t i = 0; i < text.size(); ++i) {
    node_ = automaton_->Next(node_, static_cast<uint8_t>(text[i]));
    const int32_t match = automaton_->Longest(node_);
    if (match == ByteAutomaton::kNone) continue;
    const auto index = static_cast<size_t>(match);
    stopped_ = true;
    node_ = ByteAutomaton::kRoot;
    return {.text = first(held.size() + i + 1 - automaton_->strings()[index].size()), .stop = index};
  }
  return {.text = first(held.size() + text.size() - automaton_->Depth(node_)), .stop = std::nullopt};
}

std::string StopMatcher::Flush() {
  if (!automaton_) return {};
  std::string held(automaton_->Path(node_));
  node_ = ByteAutomaton::kRoot;
  return held;
}

}  // namespace quire::runner::sampler
