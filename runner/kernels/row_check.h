// A start-up check that MatMul keeps its promise on this machine: a row's bits do not depend on the rows
// beside it (docs/numerics.md). Everything the engine reuses, batches or chunks rests on that.
#pragma once

namespace quire::runner::kernels {

// Multiplies random rows alone and in batches of several sizes, by weights of every type with a reader of its
// own, and compares the bits. Takes about a millisecond.
bool RowsAreInvariant();

// From now on MatMul computes each row by itself: slow, and the same bits whatever the kernels do.
// Process-wide; before the first step.
void ComputeRowByRow();

}  // namespace quire::runner::kernels
