// The drafters there are. All draft greedily; `vocab`: ids that the target knows; `cache_bytes`: of a
// drafter's caches and snapshots.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "api/base/error.h"
#include "cache/hybrid_cache.h"
#include "runner/draft/drafter.h"
#include "runner/models/draft_model.h"
#include "runner/models/model.h"

namespace quire::runner::draft {

// A head that reads the target's hidden state and caches (models/draft_model.h), one sequence after the
// other; it keeps nothing of its own. `cache` is the target's.
std::unique_ptr<Drafter> MakeHeadDrafter(std::unique_ptr<models::DraftModel> head, int32_t vocab,
                                         cache::HybridCache& cache);

// A small model of the target's vocabulary, with caches and prefix snapshots of its own. Its own sequence
// stays in step with the target's: rejected drafts are rolled back at the next call.
api::Result<std::unique_ptr<Drafter>> MakeModelDrafter(std::unique_ptr<models::Model> model, int32_t vocab,
                                                       size_t cache_bytes);

// The multi-token prediction (MTP) layer of the target model, each token after the first from the layer's own
// state. Its keys and values of a prefix are found by look-ahead keys (cache/prefix_tree.h), as each was
// computed from two tokens. The last few of a reused prefix may never have been: their hidden states are
// gone, and zeros stand for them. Where many are missing, it begins behind them.
api::Result<std::unique_ptr<Drafter>> MakeMtpDrafter(std::unique_ptr<models::MtpLayer> layer, int32_t vocab,
                                                     int32_t hidden_size, size_t cache_bytes);

}  // namespace quire::runner::draft
