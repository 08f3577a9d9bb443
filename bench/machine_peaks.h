// The measured peak performance of this machine, to which quire-bench relates its figures.
#pragma once

#include <map>
#include <string>

#include "runner/kernels/int8_gemm.h"
#include "runner/kernels/thread_pool.h"

namespace quire::bench {

struct MachinePeaks {
  double read_gb_per_s = 0;  // from memory, all threads
  double int8_gop_per_s =
      0;  // multiply-adds of bytes count twice, tiles have 32 inputs; 0: BestPanelTarget() has none
  double float_gflop_per_s = 0;  // float32 multiply-adds, counted twice; 0: not known
};

// What --target may name.
inline const std::map<std::string, runner::kernels::PanelTarget> kPanelTargets = {
    {"amx", runner::kernels::PanelTarget::kAmx},
    {"avx512", runner::kernels::PanelTarget::kAvx512},
    {"avxvnni", runner::kernels::PanelTarget::kAvxVnni},
    {"avx2", runner::kernels::PanelTarget::kAvx2},
    {"portable", runner::kernels::PanelTarget::kPortable}};

// Takes about a second and 512 MiB. Bytes are multiplied as BestPanelTarget() does.
MachinePeaks MeasurePeaks(runner::ThreadPool& pool);

}  // namespace quire::bench
