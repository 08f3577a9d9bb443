// A head that reads the target's hidden state and caches (models/draft_model.h); it has no cache of its own.
#pragma once

#include <memory>

#include "cache/hybrid_cache.h"
#include "runner/draft/drafter.h"
#include "runner/models/draft_model.h"

namespace quire::runner::draft {

// Drafts greedily, one sequence after the other. `cache` is the target's.
std::unique_ptr<Drafter> MakeHeadDrafter(std::unique_ptr<models::DraftModel> head, int32_t vocab,
                                         cache::HybridCache& cache);

}  // namespace quire::runner::draft
