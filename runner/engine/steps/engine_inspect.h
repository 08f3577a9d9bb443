// What the engine shows to those who look: its sequences, the stored prefixes, where a prompt left them.
// Reads only; no answer depends on it. Engine thread only.
#pragma once

#include <cstddef>
#include <optional>

#include "api/base/event.h"
#include "api/ipc/messages.h"
#include "runner/engine/steps/engine_state.h"
#include "runner/engine/steps/engine_step.h"

namespace quire::runner::engine {

// Where the prompt of a request that starts leaves what is known; nothing where it does not.
std::optional<api::Divergence> DivergenceOf(const tokenizer::Tokenizer& tokenizer,
                                            const ActiveRequest& request, const PrefixReuse::Outcome& reuse);

// `building`: requests whose prompts are being built.
api::ipc::EngineInspected InspectEngine(const EngineState& state, const BatchStep& step, size_t building,
                                        const api::ipc::InspectEngine& question);
api::ipc::CacheInspected InspectCache(const EngineState& state, const api::ipc::InspectCache& question);

}  // namespace quire::runner::engine
