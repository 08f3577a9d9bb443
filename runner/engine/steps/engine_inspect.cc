#include "runner/engine/steps/engine_inspect.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "runner/engine/steps/token_text.h"

namespace quire::runner::engine {
namespace {

namespace ipc = api::ipc;

// Tokens of a node's edge whose text is shown, at either end: no token has more bytes of text than the bound
// for long.
constexpr size_t kShownTokens = 32;

int64_t Milliseconds(Clock::duration time) {
  return std::max<int64_t>(0, std::chrono::duration_cast<std::chrono::milliseconds>(time).count());
}

std::vector<api::TokenId> Slice(const cache::TokenRun& run, size_t begin, size_t end) {
  std::vector<api::TokenId> tokens;
  tokens.reserve(end - begin);
  for (size_t i = begin; i < end; ++i) tokens.push_back(run[i]);
  return tokens;
}

// The first tokens of the edge, and the last ones behind them.
void AddText(const tokenizer::Tokenizer& tokenizer, const cache::NodeView& view, ipc::InspectedNode& node) {
  const auto size = static_cast<size_t>(view.to - view.from);
  const size_t first = std::min(size, kShownTokens);
  const auto head = Slice(view.tokens, 0, first);
  node.begin = TextOf(tokenizer, head, Excerpt::kBegin, ipc::CacheInspected::kTextBytesMax);
  if (size == first) {
    size_t bytes = 0;
    for (const api::TokenId token : head) bytes += tokenizer.TokenBytes(token).size();
    if (bytes <= ipc::CacheInspected::kTextBytesMax) return;  // `begin` is all
  }
  const auto tail = Slice(view.tokens, size - first, size);
  node.end = TextOf(tokenizer, tail, Excerpt::kEnd, ipc::CacheInspected::kTextBytesMax);
}

int64_t BytesOf(const ipc::InspectedNode& node) {
  return node.kv_bytes + node.window_bytes + node.state_bytes;
}

// `numbered`: with numbers that another key's nodes do not change.
ipc::InspectedNode Describe(const cache::NodeView& view, Clock::time_point now, bool numbered) {
  return {.id = numbered ? view.number : view.id,
          .parent = numbered ? view.parent_number : view.parent,
          .tree = 0,
          .from = view.from,
          .to = view.to,
          .kv_bytes = static_cast<int64_t>(view.bytes.full),
          .window_bytes = static_cast<int64_t>(view.bytes.window),
          .state_bytes = static_cast<int64_t>(view.bytes.slot),
          .shared_bytes = static_cast<int64_t>(view.bytes.shared),
          .restore_point = view.restorable,
          .marked = view.user_point,
          .in_use = static_cast<int32_t>(view.leases),
          .evicted_children = static_cast<int32_t>(view.evicted_children),
          .hits = view.hits,
          .age_ms = Milliseconds(now - view.created),
          .idle_ms = Milliseconds(now - view.used)};
}

ipc::InspectedSequence DescribeSequence(const ActiveRequest& request, bool runs, const EngineState& state) {
  const ActiveGeneration& generation = *request.generation;
  const auto wait = generation.backpressured() ? ipc::WaitReason::kReader
                    : runs                     ? ipc::WaitReason::kNone
                    : request.waiting().leader ? ipc::WaitReason::kPrefix
                                               : ipc::WaitReason::kPlace;
  const auto prefill = runs ? generation.clock().PrefillTime(Clock::now()) : std::nullopt;
  return {.id = generation.id(),
          .wait = wait,
          .preempted = !runs && request.waiting().preempted,
          .prompt_tokens = generation.sequence().prompt_tokens(),
          .computed_tokens = runs ? generation.sequence().computed() : 0,
          .output_tokens = generation.output_tokens(),
          .prefill_ns = prefill ? std::max<int64_t>(prefill->count(), 1) : 0,
          .virtual_time = std::llround(std::max(state.VirtualTime(request.party), 0.0))};
}

}  // namespace

std::optional<api::Divergence> DivergenceOf(const tokenizer::Tokenizer& tokenizer,
                                            const ActiveRequest& request, const PrefixReuse::Outcome& reuse) {
  if (reuse.diverged == 0) return std::nullopt;
  constexpr size_t kBytesMax = api::Divergence::kTextBytesMax;
  const auto tokens = request.generation->sequence().tokens();
  const auto at = static_cast<size_t>(reuse.diverged);
  const auto text = [&](std::span<const api::TokenId> part, Excerpt excerpt) {
    return TextOf(tokenizer, part, excerpt, kBytesMax);
  };
  const size_t before = std::min(at, PrefixReuse::kShownTokens);
  const size_t after = std::min(tokens.size() - at, PrefixReuse::kShownTokens);
  return api::Divergence{.at = reuse.diverged,
                         .shared = text(tokens.subspan(at - before, before), Excerpt::kEnd),
                         .prompt = text(tokens.subspan(at, after), Excerpt::kBegin),
                         .cached = text(reuse.known, Excerpt::kBegin)};
}

ipc::EngineInspected InspectEngine(const EngineState& state, const BatchStep& step, size_t building,
                                   const ipc::InspectEngine& question) {
  const BatchStep::Last& last = step.last();
  ipc::EngineInspected answer{.id = question.id,
                              .building = static_cast<int32_t>(building),
                              .steps = step.counters().steps,
                              .decoding = last.decoding,
                              .prefilling = last.sequences - last.decoding,
                              .prefill_tokens = last.prefill_tokens,
                              .draft_tokens = last.draft_tokens,
                              .step_ns = last.took.count()};
  const auto limit = static_cast<size_t>(ipc::kInspectedSequencesMax);
  answer.sequences.reserve(std::min(state.running.size() + state.waiting.size(), limit));
  for (const auto& [list, runs] : {std::pair{&state.running, true}, std::pair{&state.waiting, false}}) {
    for (const auto& request : *list) {
      if (answer.sequences.size() < limit)
        answer.sequences.push_back(DescribeSequence(*request, runs, state));
    }
  }
  return answer;
}

// How much of another key's prompt was new would show in all that counts its nodes: the answer to a key that
// may not see them depends on its own only.
ipc::CacheInspected InspectCache(const EngineState& state, const ipc::InspectCache& question) {
  const cache::SnapshotStore& store = state.prefixes.store();
  const auto now = Clock::now();
  const auto nodes_max = static_cast<size_t>(std::clamp(question.nodes_max, 0, ipc::kInspectedNodesMax));
  const size_t own = store.NodesOf(question.isolation);
  const uint64_t changes = question.others ? store.changes() : store.ChangesOf(question.isolation);
  ipc::CacheInspected answer{
      .id = question.id, .version = changes + 1, .unchanged = question.known_version == changes + 1};
  if (answer.unchanged) return answer;
  const cache::StoreStats stats = store.stats();
  answer.budget_bytes = static_cast<int64_t>(stats.budget_bytes);
  const auto add = [&](const cache::NodeView& view) -> ipc::InspectedNode* {
    ipc::InspectedNode node = Describe(view, now, !question.others);
    if (!question.others) answer.bytes += BytesOf(node);
    if (answer.nodes.size() >= nodes_max) {
      ++answer.nodes_left_out;
      return nullptr;
    }
    return &answer.nodes.emplace_back(std::move(node));
  };
  answer.nodes.reserve(std::min(nodes_max, question.others ? stats.nodes : own));
  store.VisitNodes(question.isolation, [&](const cache::NodeView& view) {
    if (ipc::InspectedNode* node = add(view)) AddText(*state.model.tokenizer, view, *node);
  });
  if (!question.others) return answer;
  answer.bytes = static_cast<int64_t>(stats.bytes);
  answer.other_keys = static_cast<int64_t>(stats.trees) - (own > 0 ? 1 : 0);
  answer.other_nodes = static_cast<int64_t>(stats.nodes - own);
  std::unordered_map<std::string_view, int32_t> trees;
  store.VisitNodesOfOthers(question.isolation, [&](const cache::NodeView& view) {
    const auto next = static_cast<int32_t>(trees.size()) + 1;
    if (ipc::InspectedNode* node = add(view)) node->tree = trees.emplace(view.isolation, next).first->second;
  });
  return answer;
}

}  // namespace quire::runner::engine
