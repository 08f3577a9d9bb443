// What a model's files recommend for answers, and its use for a request.
#pragma once

#include "api/base/request.h"
#include "runner/engine/prompt/loaded_model.h"
#include "runner/engine/prompt/prompt_builder.h"
#include "runner/weights/generation_defaults.h"

namespace quire::runner::engine {

// The defaults of a model whose files are open; nothing unless `used` (RunnerSettings::model_sampling). Logs
// what is recommended, and what of the files is read in another way than they say or not obeyed.
weights::GenerationDefaults LoadModelDefaults(const LoadedModel& model, bool used);

// Adds what neither the request nor a PARAMETER specifies. REQUIRES: `prompt` is that of the request.
void ApplyModelDefaults(const weights::GenerationDefaults& defaults, api::Request& request,
                        BuiltPrompt& prompt);

}  // namespace quire::runner::engine
