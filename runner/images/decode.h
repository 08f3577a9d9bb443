// Pixels of PNG, JPEG and WebP files.
#pragma once

#include <cstdint>
#include <string_view>

#include "api/base/error.h"
#include "runner/images/bitmap.h"

namespace quire::runner::images {

inline constexpr int64_t kPixelsMax = int64_t{64} << 20;  // 192 MiB decoded
inline constexpr int32_t kSideMax = 65'535;               // the most that JPEG knows

// The first frame, upright (EXIF orientation is applied). Alpha is dropped, gray becomes RGB, color profiles
// are ignored: what Pillow's convert("RGB") gives. Any thread; opens no file. kInvalidArgument: it is none of
// the three formats, it is damaged, it ends early, or it has more pixels than kPixelsMax; nothing is
// allocated for pixels before their number is checked.
api::Result<Bitmap> Decode(std::string_view file);

}  // namespace quire::runner::images
