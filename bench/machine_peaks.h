// The measured peak performance of this machine, to which quire-bench relates its figures.
#pragma once

#include "runner/kernels/thread_pool.h"

namespace quire::bench {

struct MachinePeaks {
  double read_gb_per_s = 0;   // from memory, all threads
  double int8_gop_per_s = 0;  // multiply-adds of bytes count twice; 0: this machine has no such instruction
  double float_gflop_per_s = 0;  // float32 multiply-adds, counted twice; 0: not known
};

// Takes about a second and 512 MiB.
MachinePeaks MeasurePeaks(runner::ThreadPool& pool);

}  // namespace quire::bench
