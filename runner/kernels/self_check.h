// Check of the kernels on this CPU: what is bit-identical with every instruction set (docs/numerics.md) is computed with
// each that the CPU has and compared with portable code.
#pragma once

#include <string>
#include <vector>

namespace quire::runner::kernels {

struct KernelCheck {
  std::string subject;       // what was compared, with which instruction sets
  std::string failure = {};  // empty: all bits agree
};

// Takes some tenths of a second. Not while a kernel runs: it chooses instruction sets for the whole process, and leaves the
// best one chosen.
std::vector<KernelCheck> CheckKernels();

}  // namespace quire::runner::kernels
