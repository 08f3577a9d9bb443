// What the readers of the vision towers' families share. A family's reader gives a plan: properties, and how
// its tensors are called.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "runner/models/config_reader.h"
#include "runner/models/encoder.h"
#include "runner/models/patch_tower.h"
#include "runner/models/vision_positions.h"
#include "runner/models/vision_projector.h"

namespace quire::runner::models {

// The configuration as a family's reader sees it. GGUF files have one for all, and both readers are of it.
struct VisionConfig {
  ConfigReader& model;   // what stands beside vision_config
  ConfigReader& vision;  // vision_config
  // A GGUF file with the text model and the tower in it, whose tensors Ollama's converter named.
  bool blob = false;
  bool gguf() const { return vision.gguf(); }
};

// Names as in TensorScope, without ".weight" and behind the prefix.
struct NormPlan {
  TensorName name = {};  // none: there is no such norm, or it has no weights
  NormKind kind = NormKind::kLayer;
  float eps = 0;
  bool plain = false;  // an RMS norm without weights
};

struct ProjectorPlan {
  std::string prefix = {};
  PatchJoin join = PatchJoin::kConcat;
  int32_t side = 1;
  NormPlan before = {}, after = {};
  float scale = 1;
  TensorName shift = {}, stretch = {};  // complete names; without: none
  TensorName fold = {}, first = {}, out = {};
  int64_t inner = 0;  // of `first`; 0: as the text model's
  Bias bias = Bias::kPresent;
  bool out_is_turned = false;  // stored [in, out], under its complete name
  EncoderActivation activation = EncoderActivation::kGeluErf;
};

struct VisionPlan {
  EncoderForm encoder;
  PatchTowerForm tower;
  TensorName patches;            // the complete name, behind encoder.names.prefix
  TensorName more_patches = {};  // of the second of two frames, where it is a tensor of its own
  TensorName patch_bias = {};    // the complete name; without one: none
  int32_t frames = 1;            // of the kernel; those of an image are equal
  bool colors_last = false;      // of a patch's values in Tile
  bool colors_last_in_file = false;
  PositionGrid grid = PositionGrid::kNone;
  int32_t side = 0;           // of the table
  TensorName positions = {};  // the complete name
  ProjectorPlan projector;
  std::vector<ProjectorPlan> tap_projectors = {};
};

// The keys of vision_config.
struct VisionSizeNames {
  const char* hidden = "hidden_size";
  const char* layers = "num_hidden_layers";
  const char* heads = "num_attention_heads";
  const char* ratio = nullptr;  // of feed-forward and hidden size, where intermediate_size is absent
};
// The sizes of the tower's layers.
void ReadVisionSizes(VisionConfig& config, VisionPlan& plan, const VisionSizeNames& names = {});
float ReadVisionEps(VisionConfig& config, double fallback);
// The side of the stored table of positions.
int32_t SideOfTable(VisionConfig& config, const std::string& tensor, int32_t fallback);
// Rows of a matrix of a GGUF file, where its keys do not say.
int64_t RowsOfTensor(VisionConfig& config, const std::string& tensor, int64_t fallback);
// Rotary positions of rows and columns: each has half of a head's frequencies, the same for both.
void UseGridRope(VisionConfig& config, EncoderForm& form, double default_theta);

// The base of rotary angles; a configuration may also say it in rope_parameters.
double ReadVisionTheta(VisionConfig& config, double fallback);

VisionPlan ReadGemma3Vision(VisionConfig& config);
VisionPlan ReadGemma4Vision(VisionConfig& config);
VisionPlan ReadIdefics3Vision(VisionConfig& config);
VisionPlan ReadLfm2Vision(VisionConfig& config);
VisionPlan ReadPixtralVision(VisionConfig& config);
VisionPlan ReadQwen2Vision(VisionConfig& config);
VisionPlan ReadQwen3Vision(VisionConfig& config);

}  // namespace quire::runner::models
