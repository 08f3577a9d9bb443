// Check of the kernels on this CPU: what is bit-identical with every instruction set (docs/numerics.md) is
// computed with each that the CPU has and compared with portable code.
#pragma once

#include <string>
#include <vector>

namespace quire::runner::kernels {

struct KernelCheck {
  std::string subject;       // what was compared, with which instruction sets
  std::string failure = {};  // empty: all bits agree
};

// Takes some tenths of a second. Not while a kernel runs: it chooses instruction sets for the whole process,
// and leaves the best one chosen.
std::vector<KernelCheck> CheckKernels();

// Whether this CPU's AMX tiles, where it has them, multiply as portable code does, which was never seen on
// hardware. If not, products use AVX-512 from now on. Takes some milliseconds with AMX, else nothing. Not
// while a kernel runs.
bool TilesAgree();

}  // namespace quire::runner::kernels
