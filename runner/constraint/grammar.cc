#include "runner/constraint/grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runner/constraint/empty_texts.h"
#include "runner/constraint/parse_states.h"
#include "runner/work/work_budget.h"

namespace quire::runner::constraint {

// Rules are numbered as in the builder; the whole is one more.
class GrammarCompiler {
 public:
  GrammarCompiler(const ExprRef& whole, const GrammarBuilder& builder) : whole_(whole), builder_(builder) {}

  api::Result<std::shared_ptr<const Grammar>> Run() {
    if (auto built = BuildAutomata(); !built) return std::unexpected(built.error());
    FindCoReachable();
    if (!co_reachable_[start_[builder_.size()]]) {
      return api::Fail(api::ErrorCode::kUnsupported, "the format matches no text");
    }
    if (CallsItselfFirst()) {
      return api::Fail(api::ErrorCode::kUnsupported, "the format is left-recursive");
    }
    Assemble();
    FindFollow();
    FindKinds();
    CountRemainingTexts();
    if (auto followed = CheckParseStates(); !followed) return std::unexpected(followed.error());
    return std::make_shared<const Grammar>(std::move(grammar_));
  }

 private:
  api::Result<void> BuildAutomata() {
    std::vector<Nfa> nfas;
    size_t nfa_states = 0;
    for (uint32_t rule = 0; rule <= builder_.size(); ++rule) {
      const ExprRef& body = rule == builder_.size() ? whole_ : builder_.body(rule);
      auto nfa = BuildNfa(body == nullptr ? *Never() : *body);
      if (!nfa) return std::unexpected(nfa.error());
      nfa_states += nfa->states.size();
      if (nfa_states > kNfaStatesMax) {
        return api::Fail(api::ErrorCode::kUnsupported,
                         fmt::format("the format is too large: its automata would need more than {} places",
                                     kNfaStatesMax));
      }
      Separate(*nfa, classes_);
      nfas.push_back(std::move(*nfa));
    }
    classes_.Finish();
    // A list's items are counted as they are; the whole, which nothing calls, keeps its empty text.
    const auto is_list = [this](uint32_t rule) {
      return KindOf(rule) == RuleKind::kDistinctList || KindOf(rule) == RuleKind::kDistinctItem;
    };
    const std::vector<bool> empty = FindEmptyRules(nfas, is_list);
    MakeEmptyCallsOptional(empty, nfas);
    for (uint32_t rule = 0; rule <= builder_.size(); ++rule) {
      auto dfa = Determinize(nfas[rule], classes_);
      if (!dfa) return std::unexpected(dfa.error());
      if (empty[rule] && rule != builder_.size()) RemoveEmptyText(*dfa);
      if (auto counted = AddCounter(rule, *dfa); !counted) return counted;
      start_.push_back(static_cast<StateId>(total_));
      total_ += dfa->states();
      if (total_ > kDfaStatesMax || total_ * classes_.count() > kDfaEntriesMax) {
        return api::Fail(api::ErrorCode::kUnsupported,
                         fmt::format("the format is too large: more than {} states", kDfaStatesMax));
      }
      dfas_.push_back(std::move(*dfa));
    }
    return {};
  }

  // A rule that never ends within its bounds matches nothing.
  api::Result<void> AddCounter(uint32_t rule, Dfa& dfa) {
    grammar_.counters_.emplace_back();
    steps_.emplace_back();
    const RuleKind kind = KindOf(rule);
    if (kind != RuleKind::kCountedText && kind != RuleKind::kCountedList) return {};
    const bool text = kind == RuleKind::kCountedText;
    Lengths bounds = builder_.counts(rule);
    if (text) {
      steps_.back() = StatesBetweenCharacters(dfa);
      // The opening quote is a step, too.
      ++bounds.min;
      if (bounds.max) ++*bounds.max;
    } else {
      steps_.back().resize(dfa.states());
    }
    auto counter = StepCounter::Make(
        dfa, {.byte = [&](StateId to) { return steps_.back()[to]; }, .calls = !text}, bounds);
    if (!counter) return std::unexpected(counter.error());
    if (!counter->MayContinue(0, 0)) {
      std::ranges::fill(dfa.next, kDead);
      for (auto& calls : dfa.calls) calls.clear();
    }
    grammar_.counters_.back() = *std::move(counter);
    return {};
  }

  RuleKind KindOf(uint32_t rule) const {
    return rule == builder_.size() ? RuleKind::kText : builder_.kind(rule);
  }

  bool IsCoReachable(const Dfa& dfa, StateId base, StateId state) const {
    CountWork(2 + classes_.count() / 4 + dfa.calls[state].size());
    if (dfa.accepting[state] != 0) return true;
    for (size_t c = 0; c < classes_.count(); ++c) {
      const StateId next = dfa.next[state * classes_.count() + c];
      if (next != kDead && co_reachable_[base + next]) return true;
    }
    for (const RuleCall& call : dfa.calls[state]) {
      if (co_reachable_[start_[call.rule]] && co_reachable_[base + call.then]) return true;
    }
    return false;
  }

  // A state is co-reachable when the end of its rule can be reached from it. Backwards, until nothing
  // changes.
  void FindCoReachable() {
    co_reachable_.assign(total_, false);
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t rule = dfas_.size(); rule-- > 0;) {
        for (size_t state = dfas_[rule].states(); state-- > 0;) {
          const StateId at = start_[rule] + static_cast<StateId>(state);
          if (co_reachable_[at] || !IsCoReachable(dfas_[rule], start_[rule], static_cast<StateId>(state)))
            continue;
          co_reachable_[at] = true;
          changed = true;
        }
      }
    }
  }

  // Calls at the start of a rule whose rules and continuations are co-reachable.
  template <class Visit>
  void ForEachFirstCall(uint32_t rule, Visit visit) const {
    for (const RuleCall& call : dfas_[rule].calls[0]) {
      if (co_reachable_[start_[call.rule]] && co_reachable_[start_[rule] + call.then]) visit(call.rule);
    }
  }

  bool CallsItselfFirst() const {
    // Remove rules that begin with no call of a remaining one, until nothing changes.
    std::vector<bool> left(dfas_.size(), true);
    size_t count = left.size();
    for (bool changed = true; changed;) {
      changed = false;
      for (uint32_t rule = 0; rule < left.size(); ++rule) {
        CountWork(1 + dfas_[rule].calls[0].size());
        if (!left[rule]) continue;
        bool waits = false;
        ForEachFirstCall(rule, [&](uint32_t called) { waits |= left[called]; });
        if (waits) continue;
        left[rule] = false;
        --count;
        changed = true;
      }
    }
    return count > 0;
  }

  void Assemble() {
    grammar_.classes_ = classes_;
    grammar_.start_ = start_[builder_.size()];
    grammar_.next_.reserve(total_ * classes_.count());
    for (uint32_t rule = 0; rule < dfas_.size(); ++rule) {
      CountWork(dfas_[rule].next.size());
      const Dfa& dfa = dfas_[rule];
      const StateId base = start_[rule];
      for (StateId state = 0; state < dfa.states(); ++state) {
        for (size_t c = 0; c < classes_.count(); ++c) {
          const StateId next = dfa.next[state * classes_.count() + c];
          grammar_.next_.push_back(next == kDead || !co_reachable_[base + next] ? kDead : base + next);
        }
        grammar_.call_begin_.push_back(static_cast<uint32_t>(grammar_.calls_.size()));
        for (const RuleCall& call : dfa.calls[state]) {
          if (!co_reachable_[start_[call.rule]] || !co_reachable_[base + call.then]) continue;
          grammar_.calls_.push_back({.start = start_[call.rule], .then = base + call.then});
        }
        const bool calls = grammar_.calls_.size() > grammar_.call_begin_.back();
        grammar_.accepting_.push_back(dfa.accepting[state]);
        grammar_.plain_.push_back(dfa.accepting[state] == 0 && !calls ? 1 : 0);
        grammar_.rule_of_.push_back(rule);
      }
    }
    grammar_.call_begin_.push_back(static_cast<uint32_t>(grammar_.calls_.size()));
    CountWork(grammar_.next_.size() / 4 + grammar_.calls_.size());
    for (Grammar::Call& call : grammar_.calls_) call.last = OnlyEnds(call.then);
  }

  bool OnlyEnds(StateId state) const {
    const auto row = std::span(grammar_.next_).subspan(state * classes_.count(), classes_.count());
    return grammar_.Accepting(state) && grammar_.Calls(state).empty() &&
           std::ranges::all_of(row, [](StateId next) { return next == kDead; });
  }

  ByteSet OwnFirst(StateId state) const {
    ByteSet first;
    for (size_t byte = 0; byte < first.size(); ++byte) {
      if (grammar_.Next(state, static_cast<uint8_t>(byte)) != kDead) first.set(byte);
    }
    return first;
  }

  // First bytes of a state, its calls and the end of its rule included; `follow` as known so far.
  ByteSet First(StateId state, const std::vector<ByteSet>& starts) const {
    CountWork(64 + 4 * grammar_.Calls(state).size());
    ByteSet first = OwnFirst(state);
    for (const Grammar::Call& call : grammar_.Calls(state)) {
      const uint32_t rule = grammar_.rule_of_[call.start];
      first |= starts[rule];
      if (grammar_.Accepting(call.start)) first |= grammar_.follow_[rule];
    }
    if (grammar_.Accepting(state)) first |= grammar_.follow_[grammar_.rule_of_[state]];
    return first;
  }

  void FindFollow() {
    grammar_.follow_.resize(dfas_.size());
    std::vector<ByteSet> starts(dfas_.size());
    for (bool changed = true; changed;) {
      changed = false;
      const auto grow = [&changed](ByteSet& set, const ByteSet& more) {
        if ((set | more) == set) return;
        set |= more;
        changed = true;
      };
      for (uint32_t rule = 0; rule < dfas_.size(); ++rule) grow(starts[rule], First(start_[rule], starts));
      for (const Grammar::Call& call : grammar_.calls_) {
        grow(grammar_.follow_[grammar_.rule_of_[call.start]], First(call.then, starts));
      }
    }
  }

  void FindKinds() {
    for (uint32_t rule = 0; rule < dfas_.size(); ++rule) {
      const RuleKind kind = KindOf(rule);
      grammar_.kinds_.push_back(kind);
      grammar_.plain_kinds_ = grammar_.plain_kinds_ && kind == RuleKind::kText;
      grammar_.lists_ = grammar_.lists_ || kind == RuleKind::kDistinctList;
    }
    if (grammar_.plain_kinds_) return;
    grammar_.first_of_ = start_;
    for (uint32_t rule = 0; rule < dfas_.size(); ++rule) {
      steps_[rule].resize(dfas_[rule].states());
      grammar_.steps_.insert(grammar_.steps_.end(), steps_[rule].begin(), steps_[rule].end());
    }
  }

  void CountRemainingTexts() {
    if (!grammar_.lists_) return;
    grammar_.remaining_texts_.assign(total_, kManyTexts);
    for (uint32_t rule = 0; rule < dfas_.size(); ++rule) {
      if (grammar_.kinds_[rule] != RuleKind::kDistinctItem) continue;
      std::ranges::copy(CountTexts(dfas_[rule]), grammar_.remaining_texts_.begin() + start_[rule]);
    }
    for (uint32_t rule = 0; rule < dfas_.size(); ++rule) {
      if (grammar_.kinds_[rule] == RuleKind::kDistinctList) CountRemainingItems(rule);
    }
  }

  // Where the end is not reached by bytes alone, an item must come.
  void CountRemainingItems(uint32_t rule) {
    Dfa bytes = dfas_[rule];
    uint32_t items = kManyTexts;
    for (auto& calls : bytes.calls) {
      for (const RuleCall& call : calls) items = grammar_.remaining_texts_[start_[call.rule]];
    }
    const auto counts = CountTexts(bytes);
    for (StateId state = 0; state < counts.size(); ++state) {
      if (counts[state] == 0) grammar_.remaining_texts_[start_[rule] + state] = items;
    }
  }

  // States that a text can come to. Nothing calls the rules of an alternative that matches nothing.
  std::vector<StateId> FindReachable() const {
    std::vector<bool> seen(total_);
    std::vector<StateId> reachable;
    const auto reach = [&](StateId state) {
      if (state == kDead || seen[state]) return;
      seen[state] = true;
      reachable.push_back(state);
    };
    reach(grammar_.start());
    for (size_t i = 0; i < reachable.size(); ++i) {
      const StateId state = reachable[i];
      CountWork(1 + classes_.count() / 4 + grammar_.Calls(state).size());
      for (size_t c = 0; c < classes_.count(); ++c) reach(grammar_.next_[state * classes_.count() + c]);
      for (const Grammar::Call& call : grammar_.Calls(state)) {
        reach(call.start);
        reach(call.then);
      }
    }
    return reachable;
  }

  // What begins at one place must be followed, all of it: an alternative that is not could never be written.
  api::Result<void> CheckParseStates() const {
    constexpr size_t kBeginningsMax = 256;  // behind a byte that they share, each may be several parse states
    ParseArena arena;
    const ParseArena::Mark empty = arena.mark();
    ParseStates parse_states;
    for (const StateId state : FindReachable()) {
      if (grammar_.Calls(state).empty()) continue;
      parse_states.assign(1, {state, kEmptyStack});
      Close(grammar_, arena, parse_states);
      arena.Rewind(empty);
      CountWork(1 + parse_states.size() + std::exchange(arena.looked_at, 0));
      if (parse_states.size() <= 1 + kBeginningsMax) continue;
      return api::Fail(
          api::ErrorCode::kUnsupported,
          fmt::format(
              "the format is too ambiguous: more than {} objects, arrays or rules may begin at one place",
              kBeginningsMax));
    }
    return {};
  }

  const ExprRef& whole_;
  const GrammarBuilder& builder_;
  ByteClasses classes_;
  std::vector<Dfa> dfas_;                 // [rules]
  std::vector<StateId> start_;            // [rules] first state of each
  size_t total_ = 0;                      // states
  std::vector<bool> co_reachable_;        // [states]
  std::vector<std::vector<bool>> steps_;  // [rules, states]
  Grammar grammar_;
};

size_t Grammar::bytes() const {
  size_t counted = steps_.size() / 8;
  for (const auto& counter : counters_) counted += sizeof(counter) + (counter ? counter->bytes() : 0);
  return counted + next_.size() * sizeof(StateId) + accepting_.size() * 10 + calls_.size() * sizeof(Call) +
         follow_.size() * sizeof(ByteSet) + remaining_texts_.size() * sizeof(uint32_t);
}

api::Result<std::shared_ptr<const Grammar>> CompileGrammar(const ExprRef& whole,
                                                           const GrammarBuilder& builder) {
  return GrammarCompiler(whole, builder).Run();
}

}  // namespace quire::runner::constraint
