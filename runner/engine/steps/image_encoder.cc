#include "runner/engine/steps/image_encoder.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace quire::runner::engine {

std::shared_ptr<const EncodedImage> ImageEncoder::Find(const images::PreparedImage& image) {
  const auto found = std::ranges::find(entries_, image.digest, &Entry::digest);
  if (found == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found);
  return found->image;
}

size_t ImageEncoder::Start(std::span<const SharedImage> wanted) {
  int64_t patches = 0;
  for (const SharedImage& image : wanted) {
    int64_t own = 0;
    for (const images::Tile& tile : image->tiles) own += int64_t{tile.rows} * tile.columns;
    if (!encoding_.empty() && patches + own > kPatchesOfPass) break;
    patches += own;
    encoding_.push_back(image);
    for (images::Tile& tile : image->Unpack()) tiles_.push_back(std::move(tile));
  }
  std::vector<const images::Tile*> tiles;
  tiles.reserve(tiles_.size());
  for (const images::Tile& tile : tiles_) tiles.push_back(&tile);
  pass_ = tower_->Start(tiles);
  return encoding_.size();
}

void ImageEncoder::Advance(ThreadPool& pool) {
  const auto begin = std::chrono::steady_clock::now();
  const int32_t keys = tower_->KeysOfNext(*pass_);
  const int64_t rows = slices_.Rows(keys);
  tower_->Advance(*pass_, pool, rows);
  slices_.Observe(keys, rows, std::chrono::steady_clock::now() - begin);
  if (pass_->done()) Store();
}

void ImageEncoder::Store() {
  const std::span<const float> embeddings = pass_->embeddings();
  const auto hidden = static_cast<size_t>(tower_->hidden_size());
  const size_t planes = 1 + deepstack();
  const size_t plane = embeddings.size() / planes;
  size_t from = 0;
  for (const SharedImage& image : encoding_) {
    auto encoded = std::make_shared<EncodedImage>();
    encoded->tokens = image->tokens();
    encoded->hidden_size = tower_->hidden_size();
    const size_t floats = static_cast<size_t>(encoded->tokens) * hidden;
    encoded->planes.reserve(planes * floats);
    for (size_t i = 0; i < planes; ++i) {
      const auto rows = embeddings.subspan(i * plane + from, floats);
      encoded->planes.insert(encoded->planes.end(), rows.begin(), rows.end());
    }
    from += floats;
    bytes_ += encoded->planes.size() * sizeof(float);
    entries_.push_front({image->digest, std::move(encoded)});
  }
  pass_.reset();
  encoding_.clear();
  tiles_.clear();
  // The newest stay until a request has taken them.
  while (bytes_ > kBytesMax && entries_.size() > 1) {
    bytes_ -= entries_.back().image->planes.size() * sizeof(float);
    entries_.pop_back();
  }
}

int64_t ImageEncoderBytes(const models::VisionTower& tower) {
  return tower.resident_bytes() + tower.pass_bytes(ImageEncoder::kPatchesOfPass) +
         tower.scratch_bytes(ImageEncoder::kPatchesOfPass) + static_cast<int64_t>(ImageEncoder::kBytesMax) +
         PreparedImages::kBytesMax;
}

}  // namespace quire::runner::engine
