// Linear layers with element-wise work on their outputs.
#pragma once

#include <span>

#include "runner/kernels/row_epilogue.h"
#include "runner/models/linear.h"

namespace quire::runner::models {

// As Linear::Run(), then `then` on every output, behind the bias, unless it is null.
void RunThen(ThreadPool& pool, const Linear& linear, const kernels::MatMulInput& x,
             const kernels::RowEpilogue& then, std::span<float> y);

}  // namespace quire::runner::models
