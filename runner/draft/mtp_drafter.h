// Drafts with the multi-token prediction (MTP) layer of the target model (models::MtpLayer).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "api/base/error.h"
#include "runner/draft/drafter.h"
#include "runner/models/draft_model.h"

namespace quire::runner::draft {

// Drafts greedily, each token after the first from the layer's own state. Its keys and values of a prefix
// are found by look-ahead keys (cache/prefix_tree.h), as each was computed from two tokens. The last few of a
// reused prefix may never have been: their hidden states are gone, and zeros stand for them. Where many are
// missing, it begins behind them.
api::Result<std::unique_ptr<Drafter>> MakeMtpDrafter(std::unique_ptr<models::MtpLayer> layer, int32_t vocab,
                                                     int32_t hidden_size, size_t cache_bytes);

}  // namespace quire::runner::draft
