#include "runner/models/patch_tower.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>

namespace quire::runner::models {
namespace {

constexpr int64_t kWholeRows = 512;  // of a slice where nobody waits for its end
constexpr auto kFloatBytes = static_cast<int64_t>(sizeof(float));

struct PatchPlace {
  int32_t tile = 0, row = 0, column = 0;
  int32_t patch = 0;  // of its tile, in the order that it comes in
};

// The patches of a tile, in the order that they come in.
std::vector<PatchPlace> PlacesOf(const PatchTowerForm& form, int32_t side, const images::Tile& tile,
                                 int32_t index) {
  std::vector<PatchPlace> places;
  places.reserve(static_cast<size_t>(tile.rows) * static_cast<size_t>(tile.columns));
  const int32_t block = form.in_blocks ? side : 1, rows = form.in_blocks ? tile.rows / side : tile.rows,
                columns = form.in_blocks ? tile.columns / side : tile.columns;
  for (int32_t y = 0; y < rows; ++y) {
    for (int32_t x = 0; x < columns; ++x) {
      for (int32_t i = 0; i < block * block; ++i) {
        places.push_back(
            {index, y * block + i / block, x * block + i % block, static_cast<int32_t>(places.size())});
      }
    }
  }
  return places;
}

// A window's patches follow each other, and its squares do.
void OrderByWindows(int32_t side, int32_t window, std::vector<PatchPlace>& places) {
  const int32_t pixels = side * window;
  std::ranges::stable_sort(places, {}, [&](const PatchPlace& place) {
    return std::pair(place.row / pixels, place.column / pixels);
  });
}

}  // namespace

class PatchTower::Pass final : public VisionPass {
 public:
  enum class Stage : uint8_t { kPatches, kEncoder, kTap, kProject, kDone };

  bool done() const override { return stage == Stage::kDone; }
  std::span<const float> embeddings() override { return out; }

  int64_t rows() const { return std::ssize(places); }
  int64_t squares() const { return std::ssize(row_of) / square; }

  std::vector<const images::Tile*> tiles;
  std::vector<PatchPlace> places;                   // [rows], in the encoder's order
  std::vector<std::pair<AxisTaps, AxisTaps>> taps;  // [tiles]: of rows and columns
  std::vector<int32_t> row_of;                      // [squares, patches of a square]
  int64_t square = 1;
  EncoderPass encoder;
  Stage stage = Stage::kPatches;
  int64_t at = 0;  // rows or squares of this stage that are done
  size_t taps_done = 0;
  std::vector<float> out;
};

PatchTower::PatchTower(PatchTowerParts parts, std::unique_ptr<Encoder> encoder, int64_t parameters,
                       int64_t weight_bytes, int64_t resident_bytes)
    : parts_(std::move(parts)),
      encoder_(std::move(encoder)),
      parameters_(parameters),
      weight_bytes_(weight_bytes),
      resident_bytes_(resident_bytes) {}

bool PatchTower::Takes(const images::Tile& tile, size_t values) const {
  const PatchTowerForm& form = parts_.form;
  const int32_t side = parts_.projector.side;
  if (tile.rows < side || tile.columns < side) return false;
  const int64_t patches = int64_t{tile.rows} * tile.columns;
  if (patches > form.patches_max || std::cmp_not_equal(values, patches * form.patch_values())) return false;
  if (form.side_of_tile > 0 && (tile.rows != form.side_of_tile || tile.columns != form.side_of_tile)) {
    return false;
  }
  if (parts_.positions.grid == PositionGrid::kSum &&
      std::max(tile.rows, tile.columns) > parts_.positions.side) {
    return false;
  }
  if (form.in_blocks && (tile.rows % side != 0 || tile.columns % side != 0)) return false;
  return tile.tokens == (tile.rows / side) * (tile.columns / side);
}

int64_t PatchTower::pass_bytes(int64_t patches) const {
  const int64_t squares = patches / parts_.projector.patches() + 1,
                planes = 1 + static_cast<int64_t>(parts_.form.taps.size());
  return encoder_->pass_bytes(patches) +
         patches * static_cast<int64_t>(sizeof(PatchPlace) + sizeof(int32_t)) +
         planes * squares * parts_.form.text_hidden * kFloatBytes;
}

int64_t PatchTower::scratch_bytes(int64_t patches) const {
  const int64_t width = encoder_->hidden_size(), squares = patches / parts_.projector.patches() + 1;
  const int64_t values = parts_.form.patch_values();
  int64_t widest = parts_.projector.FloatsOf(width);
  for (const VisionProjector& projector : parts_.tap_projectors) {
    widest = std::max(widest, projector.FloatsOf(width));
  }
  return encoder_->scratch_bytes(patches) +
         patches * (values * kFloatBytes + kernels::QuantizedActivations::BytesOf(values)) +
         squares * (widest * kFloatBytes + kernels::QuantizedActivations::BytesOf(widest));
}

std::unique_ptr<VisionPass> PatchTower::Start(std::span<const images::Tile* const> tiles) const {
  const PatchTowerForm& form = parts_.form;
  const int32_t side = parts_.projector.side;
  auto pass = std::make_unique<Pass>();
  pass->tiles.assign(tiles.begin(), tiles.end());
  pass->square = parts_.projector.patches();
  EncoderBatch batch;
  batch.row_begin.push_back(0);
  batch.window_begin.push_back(0);
  for (size_t i = 0; i < tiles.size(); ++i) {
    const images::Tile& tile = *tiles[i];
    assert(Fits(tile));
    std::vector<PatchPlace> places = PlacesOf(form, side, tile, static_cast<int32_t>(i));
    if (form.window > 0) OrderByWindows(side, form.window, places);
    const auto begin = static_cast<int32_t>(pass->places.size()), count = static_cast<int32_t>(places.size());
    std::vector<int32_t> row_at(places.size());
    for (int32_t row = 0; row < count; ++row) {
      const PatchPlace& place = places[static_cast<size_t>(row)];
      row_at[static_cast<size_t>(int64_t{place.row} * tile.columns + place.column)] = begin + row;
      batch.positions.push_back(form.columns_first ? place.column : place.row);
      batch.positions.push_back(form.columns_first ? place.row : place.column);
      const int32_t pixels = std::max(side * form.window, 1);
      if (row > 0 && form.window > 0) {
        const PatchPlace& last = places[static_cast<size_t>(row - 1)];
        if (last.row / pixels != place.row / pixels || last.column / pixels != place.column / pixels) {
          batch.window_begin.push_back(begin + row);
        }
      }
    }
    batch.row_begin.push_back(begin + count);
    batch.window_begin.push_back(begin + count);
    for (int32_t y = 0; y + side <= tile.rows; y += side) {
      for (int32_t x = 0; x + side <= tile.columns; x += side) {
        for (int32_t j = 0; j < side * side; ++j) {
          pass->row_of.push_back(
              row_at[static_cast<size_t>(int64_t{y + j / side} * tile.columns + x + j % side)]);
        }
      }
    }
    pass->places.insert(pass->places.end(), places.begin(), places.end());
    pass->taps.emplace_back(TapsOf(parts_.positions.grid, tile.rows, parts_.positions.side),
                            TapsOf(parts_.positions.grid, tile.columns, parts_.positions.side));
  }
  pass->encoder = encoder_->Start(std::move(batch));
  pass->out.resize((1 + form.taps.size()) * static_cast<size_t>(pass->squares() * form.text_hidden));
  return pass;
}

void PatchTower::EmbedRows(Pass& pass, ThreadPool& pool, int64_t begin, int64_t end) {
  const auto values = static_cast<size_t>(parts_.form.patch_values()),
             width = static_cast<size_t>(encoder_->hidden_size());
  const std::span<float> x = patches_.Get((end - begin) * parts_.form.patch_values());
  const auto first = static_cast<size_t>(begin), count = static_cast<size_t>(end - begin);
  for (size_t i = 0; i < count; ++i) {
    const PatchPlace& place = pass.places[first + i];
    const float* const patch = pass.tiles[static_cast<size_t>(place.tile)]->patches.data() +
                               static_cast<size_t>(place.patch) * values;
    std::copy_n(patch, values, x.data() + i * values);
  }
  const PatchTowerForm& form = parts_.form;
  if (form.pixel_scale != 1 || form.pixel_shift != 0) {
    for (float& value : x) value = value * form.pixel_scale + form.pixel_shift;
  }
  const std::span<float> h = pass.encoder.hidden().subspan(first * width, count * width);
  parts_.patches.Run(pool, {x, end - begin, quantized_}, h);
  for (size_t i = 0; i < count; ++i) {
    const PatchPlace& place = pass.places[first + i];
    const auto& [rows, columns] = pass.taps[static_cast<size_t>(place.tile)];
    parts_.positions.Add(rows[static_cast<size_t>(place.row)], columns[static_cast<size_t>(place.column)],
                         h.subspan(i * width, width));
  }
}

void PatchTower::AdvanceEncoder(Pass& pass, ThreadPool& pool, int64_t rows) {
  encoder_->Advance(pass.encoder, pool, rows);
  const std::vector<int32_t>& taps = parts_.form.taps;
  if (pass.taps_done < taps.size() && pass.encoder.layers_done() == taps[pass.taps_done] + 1) {
    pass.stage = Pass::Stage::kTap;
  } else if (pass.encoder.done()) {
    pass.stage = Pass::Stage::kProject;
  }
}

void PatchTower::Project(Pass& pass, ThreadPool& pool, const VisionProjector& projector, size_t plane,
                         int64_t rows) {
  const int64_t squares = std::max<int64_t>(rows / pass.square, 1),
                end = std::min(pass.at + squares, pass.squares());
  const auto part = [](auto& all, int64_t begin, int64_t stop, int64_t width) {
    return std::span(all).subspan(static_cast<size_t>(begin * width),
                                  static_cast<size_t>((stop - begin) * width));
  };
  const int64_t first = static_cast<int64_t>(plane) * pass.squares();
  projector.Run(pool, pass.encoder.hidden(), encoder_->hidden_size(),
                part(pass.row_of, pass.at, end, pass.square), work_,
                part(pass.out, first + pass.at, first + end, parts_.form.text_hidden));
  pass.at = end == pass.squares() ? 0 : end;
}

void PatchTower::Advance(VisionPass& pass, ThreadPool& pool, int64_t rows) {
  auto& own = static_cast<Pass&>(pass);
  assert(!own.done());
  using Stage = Pass::Stage;
  rows = std::max<int64_t>(rows, 1);
  switch (own.stage) {
    case Stage::kPatches: {
      const int64_t end = std::min(own.at + rows, own.rows());
      EmbedRows(own, pool, own.at, end);
      own.at = end;
      if (end < own.rows()) return;
      own.at = 0;
      own.stage = Stage::kEncoder;
      return;
    }
    case Stage::kEncoder:
      return AdvanceEncoder(own, pool, rows);
    case Stage::kTap:
      Project(own, pool, parts_.tap_projectors[own.taps_done], 1 + own.taps_done, rows);
      if (own.at > 0) return;
      ++own.taps_done;
      own.stage = own.encoder.done() ? Stage::kProject : Stage::kEncoder;
      return;
    case Stage::kProject:
      Project(own, pool, parts_.projector, 0, rows);
      if (own.at == 0) own.stage = Stage::kDone;
      return;
    case Stage::kDone:
      return;
  }
}

int32_t PatchTower::KeysOfNext(const VisionPass& pass) const {
  const auto& own = static_cast<const Pass&>(pass);
  return own.stage == Pass::Stage::kEncoder ? encoder_->KeysOfNext(own.encoder) : 0;
}

void PatchTower::Forward(VisionPass& pass, ThreadPool& pool, ActivationHook* hook) {
  auto& own = static_cast<Pass&>(pass);
  const auto report = [&](const std::string& name) {
    if (hook != nullptr) hook->Activation(name, own.encoder.hidden(), own.rows());
  };
  while (!own.done()) {
    const bool patches = own.stage == Pass::Stage::kPatches;
    const int32_t layer = own.encoder.layers_done();
    Advance(pass, pool, kWholeRows);
    if (patches && own.stage == Pass::Stage::kEncoder) report("hidden.embed");
    if (own.encoder.layers_done() > layer) report(fmt::format("hidden.layer{}", layer));
  }
}

}  // namespace quire::runner::models
