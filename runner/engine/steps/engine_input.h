// What other threads post to an engine.
#pragma once

#include <functional>
#include <variant>

#include "api/base/error.h"
#include "api/base/ids.h"
#include "api/base/request.h"
#include "api/ipc/messages.h"
#include "runner/engine/prompt/prompt_builder.h"
#include "runner/engine/steps/active_generation.h"

namespace quire::runner::engine {

// The daemon submitted a request; its prompt is being built.
struct Arrived {
  api::RequestId id;
};
// Its prompt is ready, or the error that ends it.
struct PromptBuilt {
  api::RequestId id;
  api::Request request;
  api::Result<BuiltPrompt> prompt;
  Clock::time_point arrived;
  api::ipc::Resume resume = {};
};
struct Stop {};
// Questions of somebody who looks; answered on the engine thread, between two steps.
struct EngineQuestion {
  api::ipc::InspectEngine question;
  std::function<void(api::ipc::EngineInspected)> answer;
};
struct CacheQuestion {
  api::ipc::InspectCache question;
  std::function<void(api::ipc::CacheInspected)> answer;
};

using Input = std::variant<Arrived, PromptBuilt, api::ipc::Credit, api::ipc::Cancel, Stop, EngineQuestion,
                           CacheQuestion>;

}  // namespace quire::runner::engine
