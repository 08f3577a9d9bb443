#include "tests/golden/vision_stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "runner/engine/prompt/image_prompt.h"
#include "runner/images/decode.h"
#include "runner/tokenizer/model_tokenizer.h"
#include "runner/weights/mapped_file.h"
#include "runner/weights/model_files.h"
#include "runner/weights/quantized_checkpoint.h"
#include "tests/golden/golden_run.h"

namespace quire::runner::golden {
namespace {

using images::PreparedImage;
using images::Tile;

// What decoders of JPEG may differ by: they round the transform differently.
constexpr int kJpegCounts = 4;
constexpr float kPixelRounding = 1e-5F;

struct Picture {
  std::string name;
  std::shared_ptr<const PreparedImage> prepared;
};

// Beside the golden, or in the folder "images" of its directory or of the one above.
api::Result<std::string> ReadPicture(const std::filesystem::path& directory, const std::string& name) {
  constexpr uint64_t kMaxBytes = 64 << 20;
  const auto above = std::filesystem::absolute(directory / "..").lexically_normal();
  for (const auto& path : {directory / name, directory / "images" / name, above / "images" / name}) {
    if (!std::filesystem::exists(path)) continue;
    const auto file = weights::MappedFile::Open(path, kMaxBytes);
    if (!file) return std::unexpected(file.error());
    return std::string(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
  }
  return api::Fail(api::ErrorCode::kNotFound,
                   fmt::format("{}: the picture {} is not there", directory.string(), name));
}

class StageRun {
 public:
  StageRun(VisionParts& parts, VisionGolden& golden, float tolerance, ThreadPool& pool)
      : parts_(parts), golden_(golden), tolerance_(tolerance), pool_(pool) {}

  api::Result<void> AddPicture(const std::filesystem::path& directory, size_t number);
  api::Result<void> RunCase(size_t number);
  VisionStages& result() { return result_; }

 private:
  void AddLine(bool good, const std::string& line) {
    result_.pass = result_.pass && good;
    result_.lines.push_back(good ? line : line + " FAIL");
  }
  bool Has(const std::string& name) const { return golden_.arrays.Find(name) != nullptr; }
  images::Bitmap AsRecorded(size_t number, images::Bitmap bitmap);
  std::vector<std::shared_ptr<const PreparedImage>> ImagesOf(size_t number) const;
  void ComparePixels(const std::string& prefix, std::span<const Tile* const> tiles);
  void CompareEmbeddings(const std::string& prefix, std::span<const Tile* const> tiles);
  std::vector<float> Encode(std::span<const Tile* const> tiles, int64_t rows);
  api::Result<void> PlaceRows(size_t number, GoldenPrompt* prompt);

  VisionParts& parts_;
  VisionGolden& golden_;
  const float tolerance_;
  ThreadPool& pool_;
  std::vector<Picture> pictures_;
  std::vector<float> embeddings_;  // of the last case, [1 + deepstack, tokens, hidden]
  VisionStages result_;
};

// The reference's pixels where they are recorded, which a JPEG decoder may have rounded differently.
images::Bitmap StageRun::AsRecorded(size_t number, images::Bitmap bitmap) {
  const std::string name = fmt::format("img{}.decoded_rgb", number);
  const weights::SafetensorsEntry* const entry = golden_.arrays.Find(name);
  const std::string& file = golden_.pictures[number];
  if (entry == nullptr) return bitmap;
  const std::vector<int64_t> shape = {bitmap.height, bitmap.width, 3};
  if (entry->shape != shape || entry->dtype != "U8") {
    AddLine(false,
            fmt::format("{}: {} x {} pixels, not those of {}", file, bitmap.width, bitmap.height, name));
    return bitmap;
  }
  int largest = 0;
  for (size_t i = 0; i < bitmap.rgb.size(); ++i) {
    const auto recorded = static_cast<uint8_t>(entry->data[i]);
    largest = std::max(largest, std::abs(int{bitmap.rgb[i]} - int{recorded}));
    bitmap.rgb[i] = recorded;
  }
  const bool jpeg = file.ends_with(".jpg") || file.ends_with(".jpeg");
  AddLine(largest <= (jpeg ? kJpegCounts : 0),
          fmt::format("{}: {} x {}, decoded within {} counts", file, bitmap.width, bitmap.height, largest));
  return bitmap;
}

api::Result<void> StageRun::AddPicture(const std::filesystem::path& directory, size_t number) {
  const std::string& name = golden_.pictures[number];
  const auto file = ReadPicture(directory, name);
  if (!file) return std::unexpected(file.error());
  auto bitmap = images::Decode(*file);
  if (!bitmap) return api::Fail(bitmap.error().code, fmt::format("{}: {}", name, bitmap.error().message));
  auto prepared = parts_.processor->Prepare(AsRecorded(number, *std::move(bitmap)));
  if (!prepared) {
    return api::Fail(prepared.error().code, fmt::format("{}: {}", name, prepared.error().message));
  }
  pictures_.push_back({name, std::make_shared<const PreparedImage>(*std::move(prepared))});
  return {};
}

std::vector<std::shared_ptr<const PreparedImage>> StageRun::ImagesOf(size_t number) const {
  std::vector<std::shared_ptr<const PreparedImage>> images;
  for (const size_t picture : golden_.cases[number].pictures) images.push_back(pictures_[picture].prepared);
  return images;
}

// Where value `i` of a tile lies in the reference's pixel_values. Their shape tells the order: images
// [..., 3, height, width]; rows of patches, padded per tile; or such rows with two equal frames (Qwen).
class PixelOrder {
 public:
  PixelOrder(std::span<const int64_t> shape, const Tile& tile, size_t index, size_t values_before)
      : tile_(tile), patch_(tile.patches.size() / static_cast<size_t>(tile.rows * tile.columns)) {
    const auto last = static_cast<size_t>(shape.back());
    if (last == patch_ || last == 2 * patch_) {
      frames_ = last / patch_;
      first_ = shape.size() > 2 ? index * static_cast<size_t>(shape[shape.size() - 2]) * last
                                : frames_ * values_before;
      return;
    }
    const size_t rank = shape.size();
    if (rank < 3 || shape[rank - 3] != 3) return;
    height_ = static_cast<size_t>(shape[rank - 2]);
    width_ = last;
    side_ = static_cast<size_t>(std::lround(std::sqrt(static_cast<double>(patch_) / 3)));
    first_ = index * 3 * height_ * width_;
    frames_ = 1;
  }

  bool known() const { return frames_ > 0; }
  size_t operator()(size_t i) const {
    const size_t number = i / patch_, inside = i % patch_;
    if (side_ == 0) {
      const size_t plane = patch_ / 3;
      if (frames_ == 1) return first_ + i;
      return first_ + number * 2 * patch_ + inside / plane * 2 * plane + inside % plane;
    }
    const auto columns = static_cast<size_t>(tile_.columns);
    const size_t row = number / columns * side_ + inside / side_ % side_;
    const size_t column = number % columns * side_ + inside % side_;
    return first_ + (inside / (side_ * side_) * height_ + row) * width_ + column;
  }

 private:
  const Tile& tile_;
  const size_t patch_;
  size_t first_ = 0, frames_ = 0, side_ = 0, height_ = 0, width_ = 0;
};

void StageRun::ComparePixels(const std::string& prefix, std::span<const Tile* const> tiles) {
  const std::string name = prefix + "pixel_values";
  if (!Has(name)) return;
  const std::vector<float> values = golden_.arrays.Floats(name);
  float largest = 0;
  size_t compared = 0;
  for (size_t t = 0; t < tiles.size(); ++t) {
    const std::vector<float>& patches = tiles[t]->patches;
    const PixelOrder order(golden_.arrays.Find(name)->shape, *tiles[t], t, compared);
    for (size_t i = 0; i < patches.size(); ++i) {
      const size_t at = order.known() ? order(i) : values.size();
      const float difference =
          at < values.size() ? std::abs(values[at] - patches[i]) : std::numeric_limits<float>::infinity();
      largest = std::max(largest, difference);
    }
    compared += patches.size();
  }
  AddLine(largest <= kPixelRounding, fmt::format("{}pixel_values: {} of {} tiles, max_abs={:.3g}", prefix,
                                                 compared, tiles.size(), largest));
}

// In slices of `rows` patches; 0: at once.
std::vector<float> StageRun::Encode(std::span<const Tile* const> tiles, int64_t rows) {
  const auto pass = parts_.tower->Start(tiles);
  if (rows == 0) parts_.tower->Forward(*pass, pool_, nullptr);
  while (!pass->done()) parts_.tower->Advance(*pass, pool_, rows);
  return {pass->embeddings().begin(), pass->embeddings().end()};
}

void StageRun::CompareEmbeddings(const std::string& prefix, std::span<const Tile* const> tiles) {
  embeddings_ = Encode(tiles, 0);
  std::vector<float> recorded = golden_.arrays.Floats(prefix + "image_embeds");
  size_t planes = 1;
  for (; Has(fmt::format("{}deepstack{}", prefix, planes - 1)); ++planes) {
    const std::vector<float> more = golden_.arrays.Floats(fmt::format("{}deepstack{}", prefix, planes - 1));
    recorded.insert(recorded.end(), more.begin(), more.end());
  }
  const float difference = MaxAbsDifference(embeddings_, recorded);
  AddLine(difference <= tolerance_, fmt::format("{}image_embeds: {} numbers in {} planes, max_abs={:.3g}",
                                                prefix, recorded.size(), planes, difference));
  bool same = Encode(tiles, 7) == embeddings_;
  size_t done = 0, tokens = 0;
  const auto width = static_cast<size_t>(parts_.tower->hidden_size());
  for (const Tile* const tile : tiles) tokens += static_cast<size_t>(tile->tokens);
  for (const Tile* const& tile : tiles) {
    const std::vector<float> alone = Encode({&tile, 1}, 0);
    const size_t size = static_cast<size_t>(tile->tokens) * width;
    for (size_t plane = 0; plane < planes && same; ++plane) {
      same = std::ranges::equal(std::span(alone).subspan(plane * size, size),
                                std::span(embeddings_).subspan(plane * tokens * width + done, size));
    }
    done += size;
  }
  AddLine(same, fmt::format("{}image_embeds: {} in slices and alone", prefix,
                            same ? "bit-identical" : "NOT BIT-IDENTICAL"));
}

// The text with what stands for its images in place of the placeholders.
std::string WithImages(std::string_view text, std::string_view placeholder,
                       std::span<const std::shared_ptr<const PreparedImage>> images) {
  std::string expanded;
  for (const auto& image : images) {
    const size_t at = text.find(placeholder);
    if (at == std::string_view::npos) break;
    expanded += text.substr(0, at);
    expanded += image->prompt_text;
    text.remove_prefix(at + placeholder.size());
  }
  return expanded += text;
}

// The rows of the images' tiles in a prompt, one after the other.
std::vector<engine::ImageSpan> SpansOf(std::span<const std::shared_ptr<const PreparedImage>> images,
                                       std::span<const models::TokenId> ids, models::TokenId image_token) {
  std::vector<engine::ImageSpan> spans;
  size_t at = 0;
  for (const auto& image : images) {
    for (const Tile& tile : image->tiles) {
      for (int32_t done = 0; done < tile.tokens;) {
        while (at < ids.size() && ids[at] != image_token) ++at;
        const size_t begin = at;
        while (at < ids.size() && ids[at] == image_token && done < tile.tokens) {
          ++at;
          ++done;
        }
        if (at == begin) return spans;
        const auto count = static_cast<int32_t>(at - begin);
        const bool whole = count == tile.tokens;
        spans.push_back({.image = nullptr,
                         .begin = static_cast<int32_t>(begin),
                         .count = count,
                         .grid_rows = whole ? tile.grid_rows : 0,
                         .grid_columns = whole ? tile.grid_columns : 0});
      }
    }
  }
  return spans;
}

api::Result<void> StageRun::PlaceRows(size_t number, GoldenPrompt* prompt) {
  const VisionCase& one = golden_.cases[number];
  const auto images = ImagesOf(number);
  if (!one.rendered.empty()) {
    const std::string text = WithImages(one.rendered, parts_.processor->placeholder(), images);
    const auto ids = parts_.tokenizer->Encode(text, tokenizer::SpecialTokens::kParse);
    if (!ids) return std::unexpected(ids.error());
    AddLine(*ids == one.ids, fmt::format("c{}.ids: {} tokens, {}", number, ids->size(),
                                         *ids == one.ids ? "equal" : "DIFFERENT"));
  }
  const std::vector<engine::ImageSpan> spans = SpansOf(images, one.ids, golden_.image_token);
  const auto width = static_cast<size_t>(parts_.tower->hidden_size());
  const auto tokens = static_cast<size_t>(one.image_tokens);
  const size_t plane = tokens * width;
  prompt->images.rows.clear();
  size_t done = 0;
  for (const engine::ImageSpan& span : spans) {
    const auto rows_of = [&](size_t k) {
      const auto begin = embeddings_.begin() + static_cast<ptrdiff_t>(k * plane + done * width);
      return std::vector<float>(begin,
                                begin + static_cast<ptrdiff_t>(static_cast<size_t>(span.count) * width));
    };
    ImageRows rows{.begin = span.begin, .end = span.end(), .embeddings = rows_of(0), .behind_layers = {}};
    for (size_t k = 1; k * plane < embeddings_.size(); ++k) rows.behind_layers.push_back(rows_of(k));
    prompt->images.rows.push_back(std::move(rows));
    done += static_cast<size_t>(span.count);
  }
  std::array<std::vector<int64_t>, 3> positions;
  engine::AppendRopePositions(spans, 0, static_cast<int64_t>(one.ids.size()), positions);
  if (!prompt->images.positions[0].empty()) {
    const bool equal = positions == prompt->images.positions;
    AddLine(equal, fmt::format("c{}.position_ids: {}", number, equal ? "equal" : "DIFFERENT"));
  }
  prompt->images.positions = std::move(positions);
  return {};
}

api::Result<void> StageRun::RunCase(size_t number) {
  const std::string prefix = fmt::format("c{}.", number);
  std::vector<const Tile*> tiles;
  int64_t tokens = 0;
  const auto images = ImagesOf(number);
  for (const auto& image : images) {
    for (const Tile& tile : image->tiles) tiles.push_back(&tile);
    tokens += image->tokens();
  }
  const bool fit = !tiles.empty() &&
                   std::ranges::all_of(tiles, [&](const Tile* tile) { return parts_.tower->Fits(*tile); });
  if (!fit || tokens != golden_.cases[number].image_tokens) {
    AddLine(false, fmt::format("{}images: {} tiles with {} tokens, not {}", prefix, tiles.size(), tokens,
                               golden_.cases[number].image_tokens));
    return {};
  }
  ComparePixels(prefix, tiles);
  CompareEmbeddings(prefix, tiles);
  GoldenPrompt prompt = golden_.text.prompts[number];
  if (auto placed = PlaceRows(number, &prompt); !placed) return placed;
  result_.text.prompts.push_back(std::move(prompt));
  return {};
}

}  // namespace

api::Result<VisionParts> OpenVision(const std::filesystem::path& model,
                                    const std::filesystem::path& projector,
                                    const std::filesystem::path& published) {
  auto files = weights::Open(model);
  if (files) files = weights::ConvertCheckpoint(*std::move(files), 1);
  if (!files) return std::unexpected(files.error());
  std::shared_ptr<const weights::ModelFiles> beside;
  if (!projector.empty()) {
    auto opened = weights::Open(projector);
    if (!opened) return std::unexpected(opened.error());
    beside = *std::move(opened);
  }
  VisionParts parts;
  auto processor = images::ReadProcessor(**files, beside.get());
  if ((*files)->format() == weights::Format::kGguf && processor && *processor != nullptr) {
    const auto directory = weights::Open(published);
    auto said = directory ? images::ReadProcessor(**directory, nullptr) : decltype(processor)(nullptr);
    if (said && *said != nullptr) processor = std::move(said);
  }
  if (!processor) return std::unexpected(processor.error());
  if (*processor == nullptr) return parts;
  auto tower = models::LoadVisionTower(*files, beside);
  if (!tower) return std::unexpected(tower.error());
  auto tokenizer = tokenizer::LoadTokenizer(**files);
  if (!tokenizer) return std::unexpected(tokenizer.error());
  parts.processor = *std::move(processor);
  parts.tower = *std::move(tower);
  parts.tokenizer = *std::move(tokenizer);
  return parts;
}

api::Result<VisionStages> RunVisionStages(VisionParts& parts, const std::filesystem::path& directory,
                                          VisionGolden& golden, float tolerance, ThreadPool& pool) {
  StageRun run(parts, golden, tolerance, pool);
  run.result().text.vocab = golden.text.vocab;
  for (size_t i = 0; i < golden.pictures.size(); ++i) {
    if (auto added = run.AddPicture(directory, i); !added) return std::unexpected(added.error());
  }
  for (size_t i = 0; i < golden.cases.size(); ++i) {
    if (auto done = run.RunCase(i); !done) return std::unexpected(done.error());
  }
  if (golden.arrays.error()) return std::unexpected(*golden.arrays.error());
  return std::move(run.result());
}

}  // namespace quire::runner::golden
