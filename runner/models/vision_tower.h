// Vision towers: models that turn the patches of images into rows of a text model's prompt. Computed in
// slices, as encoders are (encoder.h), so that running streams go on between two of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "api/base/error.h"
#include "runner/images/prepared_image.h"
#include "runner/kernels/thread_pool.h"
#include "runner/models/model.h"
#include "runner/weights/model_files.h"

namespace quire::runner::models {

// Images on their way through a tower. The tiles outlive it.
class VisionPass {
 public:
  virtual ~VisionPass() = default;
  virtual bool done() const = 0;
  // REQUIRES: done(). Plane 0 is the embeddings of all tokens of all tiles, in order; plane 1 + i what is
  // added to their rows behind text layer i (deepstack). [1 + deepstack(), tokens, hidden_size].
  virtual std::span<const float> embeddings() = 0;
};

// Engine thread only. The weights stay mapped while it lives.
class VisionTower {
 public:
  virtual ~VisionTower() = default;

  virtual int32_t hidden_size() const = 0;  // of the text model
  virtual int32_t deepstack() const { return 0; }
  virtual int64_t parameters() const = 0;
  virtual int64_t weight_bytes() const = 0;
  virtual int64_t resident_bytes() const = 0;
  // What a pass over this many patches takes, and its largest slice.
  virtual int64_t pass_bytes(int64_t patches) const = 0;
  virtual int64_t scratch_bytes(int64_t patches) const = 0;

  // Whether a tile with this many numbers in its patches is one of this tower's: the processor reads other
  // keys of the files, which may disagree.
  virtual bool Takes(const images::Tile& tile, size_t values) const = 0;
  bool Fits(const images::Tile& tile) const { return Takes(tile, tile.patches.size()); }
  // REQUIRES: the tiles fit; there is one at least.
  virtual std::unique_ptr<VisionPass> Start(std::span<const images::Tile* const> tiles) const = 0;
  // Computes the next slice, of at most `rows` patches where it can be cut. Bit-identical, however a pass is
  // cut, whatever is computed between its slices and which other tiles are in it. REQUIRES: the pass is of
  // this tower and not done.
  virtual void Advance(VisionPass& pass, ThreadPool& pool, int64_t rows) = 0;
  // What a row of the next slice costs beside what all rows do: as Encoder::KeysOfNext.
  virtual int32_t KeysOfNext(const VisionPass& pass) const = 0;
  // For golden tests: as Advance to the end, and "hidden.embed", "hidden.layer3" of the tower go to `hook`.
  virtual void Forward(VisionPass& pass, ThreadPool& pool, ActivationHook* hook) = 0;
};

// The tower in the model's own files or in `projector` (images::ReadProcessor). Null: there is none.
// kBadModel names the file, tensor and reason; kUnsupported a tower that is not known here.
api::Result<std::unique_ptr<VisionTower>> LoadVisionTower(
    std::shared_ptr<const weights::ModelFiles> model, std::shared_ptr<const weights::ModelFiles> projector);

}  // namespace quire::runner::models
