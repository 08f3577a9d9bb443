// The measured peak performance of this machine, to which quire-bench relates its figures.
#pragma once

#include "runner/kernels/thread_pool.h"

namespace quire::bench {

struct MachinePeaks {
  double read_gb_per_s = 0;  // from memory, all threads
  double int8_gop_per_s =
      0;  // multiply-adds of bytes count twice, tiles have 32 inputs; 0: BestPanelTarget() has none
  double float_gflop_per_s = 0;  // float32 multiply-adds, counted twice; 0: not known
};

// Takes about a second and 512 MiB. Bytes are multiplied as BestPanelTarget() does.
MachinePeaks MeasurePeaks(runner::ThreadPool& pool);

}  // namespace quire::bench
