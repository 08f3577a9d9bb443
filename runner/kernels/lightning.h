// What linear attention with a constant decay per head ("lightning attention", MiniMax-01) needs beside the
// scan of Mamba-2 (state_space.h), whose recurrence with a time step of 1 and no skip is its own:
//   S = decay S + k v^T;  y = q S.
#pragma once

#include <cstdint>
#include <span>

#include "runner/kernels/thread_pool.h"

namespace quire::runner::kernels {

// x [rows, heads, (q, k, v), dim] to silu(x) in the order of SsdArgs::xbc: [rows, (v, k, q), heads, dim].
// Each number is computed in a lane of its own: a row's result does not depend on other rows.
void SiluToScanOrder(ThreadPool& pool, int64_t heads, int64_t dim, std::span<const float> x,
                     std::span<float> to);

}  // namespace quire::runner::kernels
