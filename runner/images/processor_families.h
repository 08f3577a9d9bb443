// The processors of the families, a file each. Internal to this folder.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "runner/images/image_processor.h"
#include "runner/images/processor_keys.h"

namespace quire::runner::images {

using ProcessorPtr = std::unique_ptr<const ImageProcessor>;

// Each reads what its family's files say and takes the published processor for the rest. Errors are in
// `keys`, and then what is returned is not to be used.
ProcessorPtr ReadGemma3(ProcessorKeys& keys);
ProcessorPtr ReadGemma4(ProcessorKeys& keys);
ProcessorPtr ReadIdefics3(ProcessorKeys& keys);
ProcessorPtr ReadPixtral(ProcessorKeys& keys);
ProcessorPtr ReadLfm2Vl(ProcessorKeys& keys);
ProcessorPtr ReadQwenVl(ProcessorKeys& keys, bool third_generation);

// With the mean and deviation that OpenAI published with CLIP.
PixelScale ClipScale();

// The token as often as it says.
std::string Repeat(std::string_view token, int32_t count);

// Rounded to the next multiple of `unit`, halves to the even one, as Python's round() does.
int64_t RoundToMultiple(int64_t length, int64_t unit);

struct ImageSize {
  int64_t width = 0, height = 0;
};

// As Resize(). kInvalidArgument: the result would have more pixels than decode.h allows.
api::Result<Bitmap> ResizeWithin(const Bitmap& image, ImageSize size, Filter filter);

// The size in multiples of `unit` that is next to `size` and has an area within [min, max], as Qwen's
// smart_resize computes it; a side below `unit` becomes one `side_min`.
ImageSize SmartSize(ImageSize size, int64_t unit, int64_t side_min, int64_t area_min, int64_t area_max);

}  // namespace quire::runner::images
