// A vision tower whose middle is an encoder (encoder.h): patches become rows of it, and what comes out goes
// through a projector.
//
// A family is a PatchTowerForm: what differs between SigLIP, Qwen-VL and their relatives are properties.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runner/models/encoder.h"
#include "runner/models/vision_positions.h"
#include "runner/models/vision_projector.h"
#include "runner/models/vision_tower.h"

namespace quire::runner::models {

// Numbers that no file has as they are: converted to float32, and put into another order.
using MadeWeights = std::vector<std::vector<float>>;

struct PatchTowerForm {
  int32_t patch = 0;  // pixels of a side
  int32_t text_hidden = 0;
  bool in_blocks = false;  // patches come in the squares that the projector joins, else row by row
  // Squares of a window's side; 0: no layer has windows. Rows are then ordered by windows.
  int32_t window = 0;
  int32_t patches_max = 0;                 // of a tile
  int32_t side_of_tile = 0;                // all tiles have as many rows and columns; 0: any
  std::vector<int32_t> taps = {};          // layers that a projector reads behind (deepstack)
  bool columns_first = false;              // of the two rotary positions
  float pixel_scale = 1, pixel_shift = 0;  // of the values of patches, where the tower does it

  int64_t patch_values() const { return 3 * int64_t{patch} * patch; }
};

struct PatchTowerParts {
  PatchTowerForm form;
  Linear patches;  // [hidden, patch_values]
  PositionTable positions;
  VisionProjector projector;
  std::vector<VisionProjector> tap_projectors = {};  // [taps]
  MadeWeights made = {};
};

class PatchTower final : public VisionTower {
 public:
  // `encoder` has no vocabulary.
  PatchTower(PatchTowerParts parts, std::unique_ptr<Encoder> encoder, int64_t parameters,
             int64_t weight_bytes, int64_t resident_bytes);

  int32_t hidden_size() const override { return parts_.form.text_hidden; }
  int32_t deepstack() const override { return static_cast<int32_t>(parts_.form.taps.size()); }
  int64_t parameters() const override { return parameters_; }
  int64_t weight_bytes() const override { return weight_bytes_; }
  int64_t resident_bytes() const override { return resident_bytes_; }
  int64_t pass_bytes(int64_t patches) const override;
  int64_t scratch_bytes(int64_t patches) const override;

  bool Takes(const images::Tile& tile, size_t values) const override;
  std::unique_ptr<VisionPass> Start(std::span<const images::Tile* const> tiles) const override;
  void Advance(VisionPass& pass, ThreadPool& pool, int64_t rows) override;
  int32_t KeysOfNext(const VisionPass& pass) const override;
  void Forward(VisionPass& pass, ThreadPool& pool, ActivationHook* hook) override;

 private:
  class Pass;
  void EmbedRows(Pass& pass, ThreadPool& pool, int64_t begin, int64_t end);
  void AdvanceEncoder(Pass& pass, ThreadPool& pool, int64_t rows);
  void Project(Pass& pass, ThreadPool& pool, const VisionProjector& projector, size_t plane, int64_t rows);

  const PatchTowerParts parts_;
  const std::unique_ptr<Encoder> encoder_;
  const int64_t parameters_, weight_bytes_, resident_bytes_;
  Scratch patches_;  // of one slice
  kernels::QuantizedActivations quantized_;
  VisionProjector::Work work_;
};

}  // namespace quire::runner::models
