// libFuzzer: any bytes as an image, and what is decoded through a processor of each family.
#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "runner/images/decode.h"
#include "runner/images/processor_families.h"
#include "runner/images/processor_keys.h"

namespace {

using quire::runner::images::ProcessorKeys;
using quire::runner::images::ProcessorPtr;

// Small tiles: an input is to take no second.
ProcessorPtr Small(ProcessorPtr (*read)(ProcessorKeys&)) {
  const auto processor = nlohmann::ordered_json::parse(
      R"({"patch_size":8,"image_processor":{
      "size":{"longest_edge":112,"height":56,"width":56},"min_pixels":256,"max_pixels":1600,"patch_size":8,
      "encoder_patch_size":8,"tile_size":64,"min_image_tokens":4,"max_image_tokens":16,
      "max_image_size":{"longest_edge":56},"max_soft_tokens":4}})");
  const auto config = nlohmann::ordered_json::parse(
      R"({"mm_tokens_per_image":16,"vision_config":{"image_size":56,"patch_size":7}})");
  ProcessorKeys keys({{"processor", &processor, "fuzz"}, {"config", &config, "fuzz"}});
  ProcessorPtr made = read(keys);
  if (keys.error()) std::abort();
  return made;
}

// Mutated chunks of a PNG file would never get past their checksums.
std::string WithChecksums(std::string file) {
  constexpr size_t kSignature = 8, kFrame = 12;
  const auto big_endian = [&](size_t at) {
    uint32_t value = 0;
    for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(file[at + i]);
    return value;
  };
  if (!file.starts_with("\x89PNG")) return file;
  for (size_t at = kSignature; at + kFrame <= file.size();) {
    const size_t length = big_endian(at);
    if (length > file.size() - at - kFrame) break;
    const auto sum = static_cast<uint32_t>(
        crc32(0, reinterpret_cast<const Bytef*>(&file[at + 4]), static_cast<uInt>(4 + length)));
    for (size_t i = 0; i < 4; ++i) file[at + 8 + length + i] = static_cast<char>(sum >> (24 - 8 * i));
    at += kFrame + length;
  }
  return file;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quire::runner::images;  // NOLINT(google-build-using-namespace)
  static const ProcessorPtr kProcessors[] = {
      Small(&ReadGemma3),   Small(&ReadGemma4),
      Small(&ReadLfm2Vl),   Small(&ReadPixtral),
      Small(&ReadIdefics3), Small([](ProcessorKeys& keys) { return ReadQwenVl(keys, true); })};
  const auto bitmap = Decode(WithChecksums({reinterpret_cast<const char*>(data), size}));
  if (!bitmap) return 0;
  if (bitmap->rgb.size() !=
      size_t{3} * static_cast<size_t>(bitmap->width) * static_cast<size_t>(bitmap->height)) {
    std::abort();
  }
  if (bitmap->rgb.size() > size_t{1} << 16) return 0;
  // One a run: decoders are what files attack.
  const ProcessorPtr& processor = kProcessors[size % std::size(kProcessors)];
  const auto image = processor->Prepare(*bitmap);
  if (!image) return 0;
  for (const Tile& tile : image->tiles) {
    if (tile.tokens < 1 || tile.patches.size() % static_cast<size_t>(tile.rows * tile.columns) != 0)
      std::abort();
  }
  size_t tokens = 0;
  for (size_t at = image->prompt_text.find(processor->image_token()); at != std::string::npos;
       at = image->prompt_text.find(processor->image_token(), at + processor->image_token().size())) {
    ++tokens;
  }
  if (tokens != static_cast<size_t>(image->tokens())) std::abort();
  return 0;
}
