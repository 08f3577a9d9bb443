// Estimates the memory of a loaded and busy model before its weights are read.
#pragma once

#include <cstddef>
#include <cstdint>

#include "api/ipc/messages.h"
#include "runner/models/model.h"

namespace quire::runner::engine {

struct EngineLimits;

// Memory of an engine beside weights and caches when it computes its largest step.
int64_t ScratchBytes(const models::Model& model, const EngineLimits& limits);

// The part of it that the compute threads keep on their stacks, and the sums of attention that is cut along
// its keys.
int64_t ThreadBytes(const models::Model& model);

// `process`: what this process has now, and keeps. `requested_cache_bytes`: > 0 = so much for the caches,
// whatever there is. `available`: memory that it may ever have; where other programs have most of it just
// now, the caches ask for less, down to a quarter. `cache_needed`: by requests that began in another runner
// (BudgetForContext); fewer bytes are no use.
api::ipc::MemoryEstimate EstimateMemory(const models::Model& model, const EngineLimits& limits,
                                        int64_t process, int32_t context_length,
                                        int64_t requested_cache_bytes, int64_t available,
                                        size_t cache_needed = 0);

}  // namespace quire::runner::engine
