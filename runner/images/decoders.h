// The formats behind decode.h, a file each. Internal to this folder.
#pragma once

#include <cstdint>
#include <string_view>

#include "api/base/error.h"
#include "runner/images/bitmap.h"

namespace quire::runner::images {

struct DecodedFile {
  Bitmap bitmap;
  int32_t orientation = 1;  // as EXIF counts: 1 is upright
};

bool IsPng(std::string_view file);
bool IsJpeg(std::string_view file);
bool IsWebp(std::string_view file);
// REQUIRES: the file is of the format. Errors as Decode().
api::Result<DecodedFile> DecodePng(std::string_view file);
api::Result<DecodedFile> DecodeJpeg(std::string_view file);
api::Result<DecodedFile> DecodeWebp(std::string_view file);

// A black image. kInvalidArgument: it has no pixels, or more than decode.h allows.
api::Result<Bitmap> MakeBitmap(int64_t width, int64_t height);

// kInvalidArgument "the PNG image is damaged: REASON".
std::unexpected<api::Error> RefuseImage(std::string_view format, std::string_view reason);

// The orientation in EXIF data, with or without the words "Exif" before it; 1 where it has none.
int32_t OrientationOfExif(std::string_view exif);

}  // namespace quire::runner::images
