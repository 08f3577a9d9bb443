// Images of prompts: which of them are to be encoded, and where their embeddings go. Engine thread only.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "api/base/request.h"
#include "runner/engine/shares/step_plan.h"
#include "runner/engine/steps/engine_state.h"
#include "runner/engine/steps/image_encoder.h"
#include "runner/models/model.h"

namespace quire::runner::engine {

class PromptImages {
 public:
  // Takes the model's tower. The state outlives it.
  explicit PromptImages(EngineState& state);

  // Whether the tower takes these. True for none.
  bool Fit(const std::vector<ImageSpan>& images) const;
  static void Set(std::vector<ImageSpan> images, api::Request& request, ActiveRequest& active);
  void Collect();  // for waiting requests
  bool Encode();   // one slice; false: none is wanted
  static bool HasBehind(const ActiveRequest& request, int32_t reused);
  static void Release(ActiveRequest& request);  // those that are computed

  // For a step.
  void Align(std::vector<StepItem>& items) const;
  void AddRows(const ActiveRequest& request, int32_t row, int32_t rows, models::Batch& batch) const;
  void PlaceRows(const std::vector<StepItem>& items, models::Batch& batch) const;

  std::chrono::nanoseconds kernel_time() const { return kernel_time_; }

 private:
  void StartPass();

  EngineState& state_;
  const std::unique_ptr<ImageEncoder> encoder_;  // null: the model sees no images
  std::chrono::nanoseconds kernel_time_{};
};

}  // namespace quire::runner::engine
