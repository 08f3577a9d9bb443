// Takes the empty text out of the rules of a grammar: a call of a rule that may match it becomes optional,
// and the rule itself matches it no more. The grammar matches the same texts. Without this, every such call
// is one more parse state behind each byte, and rules of them multiply each other.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runner/constraint/automaton.h"

namespace quire::runner::constraint {

// Which rules match the empty text, [rules]. `exempt`: rules that are not looked into and count as not empty.
std::vector<bool> FindEmptyRules(std::span<const Nfa> rules,
                                 const std::function<bool(uint32_t rule)>& exempt);
// Lets every call of an empty rule be passed by.
void MakeEmptyCallsOptional(const std::vector<bool>& empty, std::span<Nfa> rules);
// The same texts but for the empty one.
void RemoveEmptyText(Dfa& dfa);

}  // namespace quire::runner::constraint
