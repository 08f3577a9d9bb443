// The steps of ArrangeTurns() that concern tool calls and their results.
#pragma once

#include <vector>

#include "runner/prompt/turns.h"

namespace quire::runner {

// Gives calls and their results the ids that the template takes, and results the name of their function.
void NameCalls(std::vector<Turn>& turns, CallIds ids);
// Moves results before whatever else stands between them and their calls.
void ResultsToCalls(std::vector<Turn>& turns);
// Results that no call asked for become user turns.
void OrphansAsUser(std::vector<Turn>& turns);
// Texts beside calls, several calls at once, calls and results as text; leaves out empty answers.
void ArrangeCalls(std::vector<Turn>& turns, const TurnRules& rules, const WriteCalls& write_calls);

}  // namespace quire::runner
