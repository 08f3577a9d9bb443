// libFuzzer: any bytes as an image, and what is decoded through a processor of each family.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

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
      "size":{"longest_edge":4096,"shortest_edge":256,"height":56,"width":56},"patch_size":8,"encoder_patch_size":8,"tile_size":64,"min_image_tokens":4,"max_image_tokens":16,
      "max_image_size":{"longest_edge":56},"max_soft_tokens":70}})");
  const auto config = nlohmann::ordered_json::parse(
      R"({"mm_tokens_per_image":16,"vision_config":{"image_size":56,"patch_size":7}})");
  ProcessorKeys keys({{"processor", &processor, "fuzz"}, {"config", &config, "fuzz"}});
  ProcessorPtr made = read(keys);
  if (keys.error()) std::abort();
  return made;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quire::runner::images;  // NOLINT(google-build-using-namespace)
  static const ProcessorPtr kProcessors[] = {
      Small(&ReadGemma3),   Small(&ReadGemma4),
      Small(&ReadLfm2Vl),   Small(&ReadPixtral),
      Small(&ReadIdefics3), Small([](ProcessorKeys& keys) { return ReadQwenVl(keys, true); })};
  const auto bitmap = Decode({reinterpret_cast<const char*>(data), size});
  if (!bitmap) return 0;
  if (bitmap->rgb.size() !=
      size_t{3} * static_cast<size_t>(bitmap->width) * static_cast<size_t>(bitmap->height)) {
    std::abort();
  }
  if (bitmap->rgb.size() > size_t{1} << 20) return 0;
  for (const ProcessorPtr& processor : kProcessors) {
    const auto image = processor->Prepare(*bitmap);
    if (!image) continue;
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
  }
  return 0;
}
