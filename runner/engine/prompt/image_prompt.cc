#include "runner/engine/prompt/image_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>

#include "runner/images/decode.h"
#include "runner/images/pixel_digest.h"
#include "runner/work/work_budget.h"

namespace quire::runner::engine {
namespace {

constexpr uint32_t kImageBit = 0x8000'0000;
constexpr int32_t kIdsOfDigest = 8;

std::array<uint8_t, 32> DigestOf(std::string_view file) {
  images::PixelDigest sha;
  sha.Update({reinterpret_cast<const uint8_t*>(file.data()), file.size()});
  return sha.Finish();
}

// The ids of an image's rows.
std::vector<api::TokenId> IdsOf(const images::PreparedImage& image) {
  std::vector<api::TokenId> ids;
  const int32_t count = image.tokens();
  ids.reserve(static_cast<size_t>(count));
  for (int32_t block = 0; std::ssize(ids) < count; ++block) {
    images::PixelDigest sha;
    sha.Update(image.digest);
    sha.Update(std::array{static_cast<uint8_t>(block), static_cast<uint8_t>(block >> 8)});
    const std::array<uint8_t, 32> digest = sha.Finish();
    for (int32_t i = 0; i < kIdsOfDigest && std::ssize(ids) < count; ++i) {
      uint32_t word = 0;
      std::memcpy(&word, digest.data() + i * sizeof(word), sizeof(word));
      ids.push_back(static_cast<api::TokenId>(word | kImageBit));
    }
  }
  return ids;
}

const std::vector<api::Message>* MessagesOf(const api::Prompt& prompt) {
  if (const auto* chat = std::get_if<api::ChatPrompt>(&prompt)) return &chat->messages;
  if (const auto* continued = std::get_if<api::ContinuedPrompt>(&prompt)) return &continued->messages;
  return nullptr;
}

// The spans of a tile whose rows begin at embedding `first`, where the tokens from `at` on hold them: markup
// may stand between rows.
bool AppendTile(const SharedImage& image, const images::Tile& tile, std::span<const api::TokenId> ids,
                int32_t first, std::span<const api::TokenId> tokens, size_t& at,
                std::vector<ImageSpan>& spans) {
  const auto own = ids.subspan(static_cast<size_t>(first));
  int32_t done = 0;
  while (done < tile.tokens) {
    while (at < tokens.size() && tokens[at] >= 0) ++at;
    const int32_t begin = done;
    const auto begin_at = static_cast<int32_t>(at);
    while (done < tile.tokens && at < tokens.size() && tokens[at] == own[static_cast<size_t>(done)]) {
      ++at;
      ++done;
    }
    if (done == begin) return false;
    const bool whole = done - begin == tile.tokens;
    spans.push_back({.image = image,
                     .begin = begin_at,
                     .count = done - begin,
                     .first = first + begin,
                     .grid_rows = whole ? tile.grid_rows : 0,
                     .grid_columns = whole ? tile.grid_columns : 0});
  }
  return true;
}

}  // namespace

void AppendRopePositions(std::span<const ImageSpan> spans, int64_t begin, int64_t count,
                         std::array<std::vector<int64_t>, 3>& to) {
  int64_t saved = 0;  // positions that the grids before a token take fewer than tokens
  size_t next = 0;
  for (int64_t index = begin; index < begin + count; ++index) {
    while (next < spans.size() && spans[next].end() <= index) {
      saved += spans[next].count - spans[next].positions();
      ++next;
    }
    std::array<int64_t, 3> position = {index - saved, index - saved, index - saved};
    if (next < spans.size() && spans[next].begin <= index && spans[next].grid_rows > 0) {
      const ImageSpan& span = spans[next];
      const int64_t start = span.begin - saved, row = index - span.begin;
      position = {start, start + row / span.grid_columns, start + row % span.grid_columns};
    }
    for (size_t axis = 0; axis < position.size(); ++axis) to[axis].push_back(position[axis]);
  }
}

PackedImage::PackedImage(images::PreparedImage image) : images::PreparedImage(std::move(image)) {
  for (images::Tile& tile : tiles) {
    packed_.push_back(Pack(tile.patches));
    std::vector<float>().swap(tile.patches);
  }
}

PackedImage::Values PackedImage::Pack(const std::vector<float>& patches) {
  constexpr size_t kShortsMax = size_t{1} << 16, kBytesMax = size_t{1} << 8;
  Values values;
  std::unordered_map<uint32_t, uint16_t> places;
  values.shorts.reserve(patches.size());
  for (const float value : patches) {
    const auto [place, is_new] = places.try_emplace(std::bit_cast<uint32_t>(value), places.size());
    if (is_new) values.table.push_back(value);
    if (values.table.size() > kShortsMax) return {.plain = patches};
    values.shorts.push_back(place->second);
  }
  if (values.table.size() > kBytesMax) return values;
  values.bytes.assign(values.shorts.begin(), values.shorts.end());
  std::vector<uint16_t>().swap(values.shorts);
  return values;
}

std::vector<images::Tile> PackedImage::Unpack() const {
  std::vector<images::Tile> whole = tiles;
  for (size_t i = 0; i < whole.size(); ++i) {
    const Values& values = packed_[i];
    std::vector<float>& patches = whole[i].patches;
    patches = values.plain;
    patches.reserve(values.bytes.size() + values.shorts.size());
    for (const uint8_t place : values.bytes) patches.push_back(values.table[place]);
    for (const uint16_t place : values.shorts) patches.push_back(values.table[place]);
  }
  return whole;
}

size_t PackedImage::values(size_t tile) const {
  const Values& values = packed_[tile];
  return values.bytes.size() + values.shorts.size() + values.plain.size();
}

int64_t PackedImage::packed_bytes() const {
  size_t bytes = 0;
  for (const Values& values : packed_)
    bytes += values.table.size() * sizeof(float) + values.bytes.size() + values.shorts.size() * 2 +
             values.plain.size() * sizeof(float);
  return static_cast<int64_t>(bytes);
}

api::Result<SharedImage> PreparedImages::Get(const images::ImageProcessor& processor,
                                             const api::Client& client, const std::string& file) {
  const std::pair key(DigestOf(file), client.IsolationKey());
  {
    const api::MutexLock lock(mutex_);
    const auto found = std::ranges::find(entries_, key, &Entry::key);
    if (found != entries_.end()) {
      entries_.splice(entries_.begin(), entries_, found);
      return found->image;
    }
  }
  CheckWork();
  const auto bitmap = images::Decode(file);
  if (!bitmap) return std::unexpected(bitmap.error());
  auto prepared = processor.Prepare(*bitmap);
  if (!prepared) return std::unexpected(std::move(prepared.error()));
  struct Held {
    fair::Quota::Lease lease;
    PackedImage image;
  };
  const auto held =
      std::make_shared<Held>(fair::Quota::Lease(alive_, client.party), PackedImage(*std::move(prepared)));
  const int64_t bytes = held->image.packed_bytes();
  if (held->lease.GrowTo(static_cast<uint64_t>(bytes))) {
    return api::Fail(api::ErrorCode::kUnavailable,
                     "too many images are waiting to be read; try again when others are answered");
  }
  const SharedImage image(held, &held->image);
  if (bytes > kBytesMax) return image;
  const api::MutexLock lock(mutex_);
  entries_.push_front({key, image});
  bytes_ += bytes;
  while (bytes_ > kBytesMax) {
    bytes_ -= entries_.back().image->packed_bytes();
    entries_.pop_back();
  }
  return image;
}

api::Result<RequestImages> RequestImages::Prepare(const ImageContext& context, const api::Request& request) {
  RequestImages made;
  made.context_ = context;
  const std::vector<api::Message>* messages = MessagesOf(request.prompt);
  if (messages == nullptr) return made;
  for (size_t i = 0; i < messages->size(); ++i) {
    const api::Message& message = (*messages)[i];
    for (size_t j = 0; j < message.images.size(); ++j) {
      const std::string field = fmt::format("messages[{}].images[{}]", i, j);
      if (context.processor == nullptr || !context.image_token) {
        return api::Fail(api::ErrorCode::kUnsupported,
                         fmt::format("{}: this model does not support images", field), field);
      }
      auto image = context.prepared->Get(*context.processor, request.client, *message.images[j].file);
      if (!image) {
        return api::Fail(image.error().code, fmt::format("{}: {}", field, image.error().message), field);
      }
      made.images_.emplace(message.images[j].file.get(), *std::move(image));
    }
  }
  return made;
}

std::vector<SharedImage> RequestImages::ImagesOf(std::span<const api::Message> messages) const {
  std::vector<SharedImage> images;
  for (const api::Message& message : messages) {
    for (const api::Image& image : message.images) images.push_back(images_.at(image.file.get()));
  }
  return images;
}

api::Result<std::vector<PromptSegment>> RequestImages::Expand(std::vector<PromptSegment> rendered,
                                                              std::span<const api::Message> messages) const {
  const std::vector<SharedImage> images = ImagesOf(messages);
  if (images.empty()) return rendered;
  const std::string& placeholder = context_.processor->placeholder();
  size_t next = 0;
  for (PromptSegment& segment : rendered) {
    if (!segment.from_template) continue;
    std::string text;
    size_t from = 0;
    for (size_t at = 0; (at = segment.text.find(placeholder, from)) != std::string::npos;) {
      if (next == images.size()) break;
      text.append(segment.text, from, at - from);
      text += images[next++]->prompt_text;
      from = at + placeholder.size();
    }
    text.append(segment.text, from);
    segment.text = std::move(text);
  }
  if (next == images.size()) return rendered;
  return api::Fail(api::ErrorCode::kUnsupported,
                   fmt::format("the model's chat template shows {} of {} images", next, images.size()),
                   "messages");
}

api::Result<void> RequestImages::Mark(std::span<const api::Message> messages,
                                      std::vector<api::TokenId>& tokens) const {
  std::vector<api::TokenId> ids;
  for (const SharedImage& image : ImagesOf(messages)) {
    const std::vector<api::TokenId> own = IdsOf(*image);
    ids.insert(ids.end(), own.begin(), own.end());
  }
  size_t next = 0;
  for (api::TokenId& token : tokens) {
    if (token != context_.image_token) continue;
    if (next == ids.size()) break;
    token = ids[next++];
  }
  if (next == ids.size()) return {};
  return api::Fail(api::ErrorCode::kInternal,
                   fmt::format("the prompt has {} rows for images of {} rows", next, ids.size()));
}

api::Result<std::vector<ImageSpan>> RequestImages::SpansIn(std::span<const api::TokenId> tokens) const {
  std::map<api::TokenId, std::pair<SharedImage, std::vector<api::TokenId>>> by_first;
  for (const auto& [file, image] : images_) {
    std::vector<api::TokenId> ids = IdsOf(*image);
    const api::TokenId first = ids.front();
    by_first.emplace(first, std::pair(image, std::move(ids)));
  }
  std::vector<ImageSpan> spans;
  for (size_t at = 0; at < tokens.size();) {
    if (tokens[at] >= 0) {
      ++at;
      continue;
    }
    const auto found = by_first.find(tokens[at]);
    bool whole = found != by_first.end();
    int32_t first = 0;
    if (whole) {
      const auto& [image, ids] = found->second;
      for (const images::Tile& tile : image->tiles) {
        whole = whole && AppendTile(image, tile, ids, first, tokens, at, spans);
        first += tile.tokens;
      }
    }
    if (!whole)
      return api::Fail(api::ErrorCode::kContextLengthExceeded,
                       "an image does not fit in what the context leaves of the request");
  }
  return spans;
}

void RequestImages::Unmark(std::vector<api::TokenId>& tokens) const {
  for (api::TokenId& token : tokens) {
    if (token < 0) token = *context_.image_token;
  }
}

}  // namespace quire::runner::engine
