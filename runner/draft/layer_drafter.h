// The layer that a model was trained with to predict one token further (models::PredictionLayer).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "api/error.h"
#include "runner/draft/drafter.h"
#include "runner/models/draft_model.h"

namespace quire::runner::draft {

// Guesses greedily, each token after the first from the layer's own state. Its keys and values begin where a
// request begins to be computed: of a reused prefix the hidden states are gone, and guesses do without.
api::Result<std::unique_ptr<Drafter>> MakeLayerDrafter(std::unique_ptr<models::PredictionLayer> layer,
                                                       int32_t vocab, int32_t hidden_size,
                                                       size_t cache_bytes);

}  // namespace quire::runner::draft
