// Start-up check that MatMul is batch-invariant on this machine: a row's bits do not depend on the other rows
// of the batch (docs/numerics.md). Cache reuse, batching and chunked prefill rely on it.
#pragma once

namespace quire::runner::kernels {

// Multiplies random rows alone and in batches of several sizes, by weights of every type with a reader of its
// own, and compares the bits. Takes about a millisecond.
bool CheckBatchInvariance();

// From now on MatMul computes each row by itself: slow, but batch-invariant with any kernel.
// Process-wide; before the first step.
void ForceSingleRow();

}  // namespace quire::runner::kernels
