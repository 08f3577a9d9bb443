// Images of a request's messages: from files to rows of its prompt.
//
// In a prompt's tokens the rows of an image are ids below 0 that follow from its pixels, 31 bits each. So two
// images never look alike to whatever compares tokens: cached prefixes, their lower tiers, running sequences.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "api/base/error.h"
#include "api/base/fair/quota.h"
#include "api/base/ids.h"
#include "api/base/mutex.h"
#include "api/base/request.h"
#include "runner/images/image_processor.h"
#include "runner/prompt/turns.h"
#include "runner/tokenizer/tokenizer.h"

namespace quire::runner::engine {

// An image whose tiles have no patches: pixels of 8 bits have few values, so that places in a table of them
// take a quarter or half of the memory while requests wait, and lose no bit.
class PackedImage : public images::PreparedImage {
 public:
  PackedImage() = default;
  explicit PackedImage(images::PreparedImage image);

  // The tiles with their patches.
  std::vector<images::Tile> Unpack() const;
  int64_t packed_bytes() const;
  size_t values(size_t tile) const;  // of its patches

 private:
  struct Values {
    std::vector<float> table = {};
    std::vector<uint8_t> bytes = {};    // places in the table,
    std::vector<uint16_t> shorts = {};  // where it has more than 256,
    std::vector<float> plain = {};      // and the values where it would have more than 65,536
  };
  static Values Pack(const std::vector<float>& patches);

  std::vector<Values> packed_;  // [tiles]
};
using SharedImage = std::shared_ptr<const PackedImage>;

// Prompt tokens [begin, begin + count) are the embeddings from `first` on of an image.
struct ImageSpan {
  SharedImage image;
  int32_t begin = 0, count = 0;
  int32_t first = 0;
  // Where the rows have positions of a grid, its rows and columns: the span is all of it. 0: they have not.
  int32_t grid_rows = 0, grid_columns = 0;

  int32_t end() const { return begin + count; }
  // Rotary positions that it takes.
  int32_t positions() const { return grid_rows > 0 ? std::max(grid_rows, grid_columns) : count; }
};

// Appends the rotary positions (time, height, width) of tokens [begin, begin + count) of a prompt with these
// spans, and of what is generated behind it.
void AppendRopePositions(std::span<const ImageSpan> spans, int64_t begin, int64_t count,
                         std::array<std::vector<int64_t>, 3>& to);

// The prepared images of a runner, and those that were prepared lately, so that a later turn over one neither
// decodes nor resizes it again. What one client sent is not found by another. Any thread.
class PreparedImages {
 public:
  static constexpr int64_t kBytesMax = int64_t{64} << 20;  // of those that are kept for later turns
  // All together. A party may have half of it, and less beside others: there is always room for one more.
  static constexpr int64_t kAliveBytesMax = int64_t{1} << 30;

  // kUnavailable: its party has too many.
  api::Result<SharedImage> Get(const images::ImageProcessor& processor, const api::Client& client,
                               const std::string& file);

 private:
  struct Entry {
    std::pair<std::array<uint8_t, 32>, std::string> key;  // the file's digest, whose it is
    SharedImage image;
  };
  // The bytes of images that requests or this have.
  fair::Quota alive_{{.large = kAliveBytesMax, .party = kAliveBytesMax / 2, .leaves_room = true}};
  api::Mutex mutex_;
  std::list<Entry> entries_ GUARDED_BY(mutex_);  // the newest first
  int64_t bytes_ GUARDED_BY(mutex_) = 0;
};

// What a model needs for images in prompts.
struct ImageContext {
  std::shared_ptr<const images::ImageProcessor> processor;  // null: the model sees no images
  std::optional<api::TokenId> image_token;                  // the processor's
  std::shared_ptr<PreparedImages> prepared;
};

// Images of one request while its prompt is built. Immutable; the request outlives it.
class RequestImages {
 public:
  // kUnsupported: the model sees none. kInvalidArgument: one cannot be decoded. Both name the field.
  static api::Result<RequestImages> Prepare(const ImageContext& context, const api::Request& request);

  bool empty() const { return images_.empty(); }
  // What stands for an image in a rendered prompt (PromptTemplate::Render). REQUIRES: not empty().
  const std::string& placeholder() const { return context_.processor->placeholder(); }
  const std::string& spelled_placeholder() const { return context_.processor->text_placeholder(); }
  // What takes the place of the placeholders that the template wrote for the images of these messages.
  // kUnsupported: it did not write one for each.
  api::Result<std::vector<PromptSegment>> Expand(std::vector<PromptSegment> rendered,
                                                 std::span<const api::Message> messages) const;
  // Gives the rows of these messages' images their ids.
  api::Result<void> Mark(std::span<const api::Message> messages, std::vector<api::TokenId>& tokens) const;
  // The rows of images in marked tokens. kContextLengthExceeded: one was cut.
  api::Result<std::vector<ImageSpan>> SpansIn(std::span<const api::TokenId> tokens) const;
  // The tokens as clients know them.
  void Unmark(std::vector<api::TokenId>& tokens) const;

 private:
  std::vector<SharedImage> ImagesOf(std::span<const api::Message> messages) const;

  ImageContext context_;
  std::map<const std::string*, SharedImage> images_;  // by api::Image::file
};

}  // namespace quire::runner::engine
