// The dispatcher, its recovery and the scheduler over simulated runners that die, hang, start late and break
// the protocol, with clients that leave, stall and pin models, in virtual time. All follows from one seed;
// QUIRE_SIMULATION_SEEDS is how many there are, QUIRE_SIMULATION_FIRST the first.
//
// Checked after every step: the dispatcher's and the scheduler's invariants; no more processes than model
// slots, and no more memory granted to them than there is; requests of one model reach runners in the order
// in which they came, and those of one owner also after deaths. Checked of every request: its tokens come
// once each and in order, then one end; it fails only for a reason that it has; and it ends within a bound of
// time once the faults have stopped.
#pragma once

#include <cstdint>
#include <string>

namespace quire::scheduler::simulation {

struct Outcome {
  std::string broken;   // the first thing that is wrong; empty if nothing is
  uint64_t digest = 0;  // of all that happened
};

// One at a time in a process; switches the log off.
Outcome RunSeed(uint64_t seed);

// The seeds that the environment names, or the first `by_default` ones. What is wrong with the first bad one;
// empty if none is.
std::string RunSeeds(uint64_t by_default);

// Runs each of the first seeds twice. Empty if both runs are equal, and those of any two seeds are not.
std::string CheckThatAllFollowsFromTheSeed(uint64_t seeds);

}  // namespace quire::scheduler::simulation
