// A small model of the target's vocabulary, with caches and prefix snapshots of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "api/base/error.h"
#include "runner/draft/drafter.h"
#include "runner/models/model.h"

namespace quire::runner::draft {

// Drafts greedily. Its own sequence stays in step with the target's: rejected drafts are rolled back at the
// next call. `vocab`: ids that the target knows; `cache_bytes`: of caches and snapshots.
api::Result<std::unique_ptr<Drafter>> MakeModelDrafter(std::unique_ptr<models::Model> model, int32_t vocab,
                                                       size_t cache_bytes);

}  // namespace quire::runner::draft
