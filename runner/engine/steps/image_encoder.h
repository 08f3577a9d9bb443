// Computes the embeddings of images between the steps of the engine, and keeps them.
//
// A pass takes the images of several requests; it is computed in slices, so that running streams go on. What
// prefixes hold needs no embeddings; they are for images that a prompt shows for the first time, and again
// where its prefix is gone. Engine thread only.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "runner/engine/prompt/image_prompt.h"
#include "runner/engine/shares/slice_budget.h"
#include "runner/kernels/thread_pool.h"
#include "runner/models/vision_tower.h"

namespace quire::runner::engine {

struct EncodedImage {
  std::vector<float> planes;  // [1 + deepstack, tokens, hidden_size] (models::VisionPass)
  int32_t tokens = 0, hidden_size = 0;

  // Rows [first, first + count) of a plane.
  std::span<const float> Rows(size_t plane, int32_t first, int32_t count) const {
    const auto width = static_cast<size_t>(hidden_size);
    const size_t row = plane * static_cast<size_t>(tokens) + static_cast<size_t>(first);
    return std::span(planes).subspan(row * width, static_cast<size_t>(count) * width);
  }
};

class ImageEncoder {
 public:
  static constexpr size_t kBytesMax = size_t{64} << 20;  // of embeddings that nobody needs just now
  static constexpr int64_t kPatchesOfPass = 4096;        // unless one image has more

  explicit ImageEncoder(std::unique_ptr<models::VisionTower> tower) : tower_(std::move(tower)) {}

  // Whether the tower takes what its processor made of an image.
  bool Fits(const PackedImage& image) const {
    for (size_t i = 0; i < image.tiles.size(); ++i) {
      if (!tower_->Takes(image.tiles[i], image.values(i))) return false;
    }
    return true;
  }
  size_t deepstack() const { return static_cast<size_t>(tower_->deepstack()); }
  // Null: they are not there.
  std::shared_ptr<const EncodedImage> Find(const images::PreparedImage& image);
  // Whether a pass can begin with images that are wanted now, or go on.
  bool idle() const { return pass_ == nullptr; }
  // Begins a pass with the first of these images. How many. REQUIRES: idle(); there is at least one.
  size_t Start(std::span<const SharedImage> wanted);
  // Computes one slice. REQUIRES: not idle().
  void Advance(ThreadPool& pool);

  int64_t resident_bytes() const { return tower_->resident_bytes(); }

 private:
  using Digest = std::array<uint8_t, 32>;
  struct Entry {
    Digest digest;
    std::shared_ptr<const EncodedImage> image;
  };
  void Store();

  std::unique_ptr<models::VisionTower> tower_;
  std::vector<SharedImage> encoding_;  // by the pass
  std::vector<images::Tile> tiles_;    // theirs
  std::unique_ptr<models::VisionPass> pass_;
  SliceBudget slices_{{.time = std::chrono::milliseconds(50)}};
  std::list<Entry> entries_;  // the latest used first
  size_t bytes_ = 0;
};

// What a runner has beside its model for images of at most this many patches: the tower and its largest pass.
int64_t ImageEncoderBytes(const models::VisionTower& tower);

}  // namespace quire::runner::engine
