#include "runner/constraint/automaton.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "runner/work/work_budget.h"

namespace quire::runner::constraint {
namespace {

std::unexpected<api::Error> TooLarge(std::string_view what) {
  return api::Fail(api::ErrorCode::kUnsupported,
                   fmt::format("the format is too large: its automaton would need more than {}", what));
}

class NfaBuilder {
 public:
  static constexpr uint64_t kUnitsPerState = 8;  // also for its memory

  uint32_t NewState() {
    CountWork(kUnitsPerState);
    nfa_.states.emplace_back();
    return static_cast<uint32_t>(nfa_.states.size() - 1);
  }
  bool full() const { return nfa_.states.size() > kNfaStatesMax; }
  Nfa Take() { return std::move(nfa_); }

  void Add(const Expr& expr, uint32_t from, uint32_t to) {
    CountWork();
    if (full()) return;
    std::visit([&](const auto& form) { AddForm(form, from, to); }, expr.form);
  }

 private:
  void AddForm(const Expr::Bytes& ranges, uint32_t from, uint32_t to) {
    CountWork(ranges.size());
    for (const ByteRange& range : ranges) nfa_.states[from].edges.push_back({to, range});
  }
  void AddForm(const std::string& text, uint32_t from, uint32_t to) {
    if (text.empty()) return nfa_.states[from].epsilon.push_back(to);
    for (size_t i = 0; i < text.size(); ++i) {
      const uint32_t next = i + 1 == text.size() ? to : NewState();
      const auto byte = static_cast<uint8_t>(text[i]);
      nfa_.states[from].edges.push_back({next, {byte, byte}});
      from = next;
    }
  }
  void AddForm(const Expr::Graph& graph, uint32_t from, uint32_t to) {
    std::vector<uint32_t> at(graph.nodes);
    for (uint32_t node = 0; node < graph.nodes; ++node) at[node] = NewState();
    nfa_.states[from].epsilon.push_back(at[0]);
    nfa_.states[at[1]].epsilon.push_back(to);
    for (const Expr::Edge& edge : graph.edges) {
      if (edge.label == nullptr) {
        nfa_.states[at[edge.from]].epsilon.push_back(at[edge.to]);
      } else {
        Add(*edge.label, at[edge.from], at[edge.to]);
      }
    }
  }
  void AddForm(const Expr::Call& call, uint32_t from, uint32_t to) {
    nfa_.states[from].calls.push_back({call.rule, to});
  }
  void AddForm(const Expr::Automaton& dfa, uint32_t from, uint32_t to) {
    std::vector<ByteRange> ranges;  // one per class
    for (int byte = 0; byte <= 0xFF; ++byte) {
      const auto at = static_cast<uint8_t>(byte);
      if (dfa->classes.of(at) == ranges.size()) ranges.push_back({at, at});
      ranges.back().last = at;
    }
    const auto base = static_cast<uint32_t>(nfa_.states.size());
    for (size_t i = 0; i < dfa->states(); ++i) NewState();
    nfa_.states[from].epsilon.push_back(base);
    for (StateId state = 0; state < dfa->states(); ++state) {
      CountWork(ranges.size());
      Nfa::State& out = nfa_.states[base + state];
      if (dfa->accepting[state] != 0) out.epsilon.push_back(to);
      for (const ByteRange& bytes : ranges) {
        const StateId next = dfa->Next(state, bytes.first);
        if (next == kDead) continue;
        const bool extends = !out.edges.empty() && out.edges.back().to == base + next &&
                             out.edges.back().bytes.last + 1 == bytes.first;
        if (extends) {
          out.edges.back().bytes.last = bytes.last;
        } else {
          out.edges.push_back({base + next, bytes});
        }
      }
    }
  }

  Nfa nfa_;
};

struct SetHash {
  size_t operator()(const std::vector<uint32_t>& set) const {
    uint64_t hash = 0x9E3779B97F4A7C15U;
    for (const uint32_t x : set) hash = ((hash ^ x) * 0xFF51AFD7ED558CCDU) ^ (hash >> 29U);
    return hash;
  }
};

// Subset construction.
class Determinizer {
 public:
  Determinizer(const Nfa& nfa, const ByteClasses& classes) : nfa_(nfa), marked_(nfa.states.size()) {
    dfa_.classes = classes;
    by_class_.resize(classes.count());
  }

  api::Result<Dfa> Run() {
    Find({0});
    for (StateId state = 0; state < sets_.size(); ++state) {
      const bool too_large = sets_.size() > kDfaStatesMax || sets_.size() * by_class_.size() > kDfaEntriesMax;
      if (too_large) return TooLarge(fmt::format("{} states", kDfaStatesMax));
      Expand(state);
    }
    return std::move(dfa_);
  }

 private:
  // The state of the epsilon closure of `set`.
  StateId Find(std::vector<uint32_t> set) {
    ++mark_;
    std::erase_if(set, [this](uint32_t s) { return std::exchange(marked_[s], mark_) == mark_; });
    for (size_t i = 0; i < set.size(); ++i) {
      for (const uint32_t s : nfa_.states[set[i]].epsilon) {
        if (std::exchange(marked_[s], mark_) != mark_) set.push_back(s);
      }
    }
    CountWork(4 + set.size());
    // States with epsilon transitions only are redundant.
    std::erase_if(set, [this](uint32_t s) {
      return s != 1 && nfa_.states[s].edges.empty() && nfa_.states[s].calls.empty();
    });
    std::ranges::sort(set);
    const auto [found, added] = ids_.try_emplace(std::move(set), static_cast<StateId>(sets_.size()));
    if (added) {
      sets_.push_back(&found->first);
      dfa_.accepting.push_back(std::ranges::binary_search(found->first, 1U) ? 1 : 0);
      dfa_.calls.emplace_back();
    }
    return found->second;
  }

  void Expand(StateId state) {
    for (auto& targets : by_class_) targets.clear();
    std::map<uint32_t, std::vector<uint32_t>> by_rule;
    CountWork(by_class_.size());
    for (const uint32_t s : *sets_[state]) {
      CountWork(nfa_.states[s].edges.size());
      for (const Nfa::Edge& edge : nfa_.states[s].edges) {
        const size_t last = dfa_.classes.of(edge.bytes.last);
        const size_t first = dfa_.classes.of(edge.bytes.first);
        CountWork(last - first);
        for (size_t c = first; c <= last; ++c) by_class_[c].push_back(edge.to);
      }
      for (const RuleCall& call : nfa_.states[s].calls) by_rule[call.rule].push_back(call.then);
    }
    StateId last = kDead;
    for (size_t c = 0; c < by_class_.size(); ++c) {
      const bool as_before = c > 0 && by_class_[c] == by_class_[c - 1];
      if (!as_before) last = by_class_[c].empty() ? kDead : Find(by_class_[c]);
      dfa_.next.push_back(last);
    }
    for (auto& [rule, targets] : by_rule) {
      const StateId then = FindAfterCall(std::move(targets));  // may move what calls has
      dfa_.calls[state].push_back({rule, then});
    }
  }

  // Optional calls make many states with the same continuation, which is determinized once.
  StateId FindAfterCall(std::vector<uint32_t> targets) {
    if (targets.size() != 1) return Find(std::move(targets));
    CountWork();
    const uint32_t target = targets.front();
    const auto [known, added] = after_call_.try_emplace(target, kDead);
    if (added) known->second = Find(std::move(targets));
    return known->second;
  }

  const Nfa& nfa_;
  Dfa dfa_;
  std::unordered_map<std::vector<uint32_t>, StateId, SetHash> ids_;
  std::vector<const std::vector<uint32_t>*> sets_;  // [states] NFA states, ascending
  std::vector<std::vector<uint32_t>> by_class_;
  std::unordered_map<uint32_t, StateId> after_call_;  // by the one NFA state that it goes on in
  std::vector<uint32_t> marked_;
  uint32_t mark_ = 0;
};

// The pairs of states that both automata reach; `b` may be dead. `accepts` decides which pairs match.
template <class Accepts>
api::Result<Dfa> Product(const Dfa& a, const Dfa& b, bool needs_b, Accepts accepts) {
  Dfa product;
  for (int byte = 1; byte <= 0xFF; ++byte) {
    const auto at = static_cast<uint8_t>(byte);
    const auto before = static_cast<uint8_t>(byte - 1);
    if (a.classes.of(at) != a.classes.of(before) || b.classes.of(at) != b.classes.of(before)) {
      product.classes.Separate({at, 0xFF});
    }
  }
  product.classes.Finish();
  std::map<std::pair<StateId, StateId>, StateId> ids;
  std::vector<std::pair<StateId, StateId>> pairs;
  const auto find = [&](std::pair<StateId, StateId> pair) {
    const auto [found, added] = ids.try_emplace(pair, static_cast<StateId>(pairs.size()));
    if (added) {
      pairs.push_back(pair);
      const bool a_accepts = a.accepting[pair.first] != 0;
      const bool b_accepts = pair.second != kDead && b.accepting[pair.second] != 0;
      product.accepting.push_back(accepts(a_accepts, b_accepts) ? 1 : 0);
    }
    return found->second;
  };
  find({0, 0});
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (pairs.size() > kDfaStatesMax) return TooLarge(fmt::format("{} states", kDfaStatesMax));
    CountWork(0x100 + product.classes.count() * 8);
    const auto [x, y] = pairs[i];
    size_t classes_done = 0;
    for (int byte = 0; byte <= 0xFF; ++byte) {
      const auto at = static_cast<uint8_t>(byte);
      if (product.classes.of(at) < classes_done) continue;
      ++classes_done;
      const StateId next_x = a.Next(x, at);
      const StateId next_y = y == kDead ? kDead : b.Next(y, at);
      const bool dead = next_x == kDead || (needs_b && next_y == kDead);
      product.next.push_back(dead ? kDead : find({next_x, next_y}));
    }
  }
  product.calls.resize(pairs.size());
  return product;
}

}  // namespace

void ByteClasses::Separate(ByteRange range) {
  borders_.set(range.first);
  borders_.set(static_cast<size_t>(range.last) + 1);
}

void ByteClasses::Finish() {
  size_t current = 0;
  for (size_t byte = 0; byte < of_.size(); ++byte) {
    if (byte > 0 && borders_.test(byte)) ++current;
    of_[byte] = static_cast<uint8_t>(current);
  }
  count_ = current + 1;
}

api::Result<Nfa> BuildNfa(const Expr& expr) {
  NfaBuilder builder;
  const uint32_t from = builder.NewState();
  const uint32_t to = builder.NewState();
  builder.Add(expr, from, to);
  if (builder.full()) return TooLarge(fmt::format("{} places", kNfaStatesMax));
  return builder.Take();
}

void Separate(const Nfa& nfa, ByteClasses& classes) {
  for (const Nfa::State& state : nfa.states) {
    for (const Nfa::Edge& edge : state.edges) classes.Separate(edge.bytes);
  }
}

api::Result<Dfa> Determinize(const Nfa& nfa, const ByteClasses& classes) {
  return Determinizer(nfa, classes).Run();
}

api::Result<Dfa> BuildDfa(const Expr& expr) {
  const auto nfa = BuildNfa(expr);
  if (!nfa) return std::unexpected(nfa.error());
  ByteClasses classes;
  Separate(*nfa, classes);
  classes.Finish();
  return Determinize(*nfa, classes);
}

api::Result<Dfa> Intersect(const Dfa& a, const Dfa& b) {
  return Product(a, b, true, [](bool in_a, bool in_b) { return in_a && in_b; });
}

api::Result<Dfa> Subtract(const Dfa& a, const Dfa& b) {
  return Product(a, b, false, [](bool in_a, bool in_b) { return in_a && !in_b; });
}

// States are counted once all that they lead to are; those that lead into a circle never are.
std::vector<uint32_t> CountTexts(const Dfa& dfa) {
  struct Edge {
    StateId from = 0;
    uint32_t bytes = 0;
  };
  const size_t classes = dfa.classes.count();
  CountWork(dfa.next.size() * 2);
  std::vector<uint32_t> bytes(classes);
  for (const uint8_t byte_class : dfa.classes.table()) ++bytes[byte_class];
  std::vector<std::vector<Edge>> to(dfa.states());
  std::vector<size_t> waits(dfa.states());
  for (StateId state = 0; state < dfa.states(); ++state) {
    for (size_t c = 0; c < classes; ++c) {
      const StateId next = dfa.next[state * classes + c];
      if (next == kDead) continue;
      to[next].push_back({state, bytes[c]});
      ++waits[state];
    }
  }
  std::vector<bool> matches(dfa.states());  // sooner or later
  std::vector<StateId> found;
  const auto find = [&](StateId state) {
    if (!matches[state]) found.push_back(state);
    matches[state] = true;
  };
  for (StateId state = 0; state < dfa.states(); ++state) {
    if (dfa.accepting[state] != 0) find(state);
  }
  for (size_t i = 0; i < found.size(); ++i) std::ranges::for_each(to[found[i]], find, &Edge::from);
  std::vector<uint64_t> counts(dfa.states());
  std::vector<StateId> ready;
  const auto drop = [&](StateId state) {
    if (--waits[state] == 0) ready.push_back(state);
  };
  for (StateId state = 0; state < dfa.states(); ++state) {
    counts[state] = dfa.accepting[state];
    if (waits[state] == 0) ready.push_back(state);
    if (matches[state]) continue;
    // It is in nobody's way, also where it goes in circles.
    std::ranges::for_each(to[state], drop, &Edge::from);
    to[state].clear();
  }
  for (size_t i = 0; i < ready.size(); ++i) {
    const StateId state = ready[i];
    for (const Edge& edge : to[state]) {
      counts[edge.from] = std::min<uint64_t>(counts[edge.from] + counts[state] * edge.bytes, kManyTexts);
      drop(edge.from);
    }
  }
  std::vector<uint32_t> result(dfa.states());
  for (StateId state = 0; state < dfa.states(); ++state) {
    const bool endless = matches[state] && waits[state] != 0;
    result[state] = endless ? kManyTexts : static_cast<uint32_t>(counts[state]);
  }
  return result;
}

bool Matches(const Dfa& dfa, std::string_view text) {
  StateId state = 0;
  for (const char c : text) {
    state = dfa.Next(state, static_cast<uint8_t>(c));
    if (state == kDead) return false;
  }
  return dfa.accepting[state] != 0;
}

}  // namespace quire::runner::constraint
