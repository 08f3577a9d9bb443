#include "runner/images/decode.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <string>
#include <utility>

#include "runner/images/decoders.h"

namespace quire::runner::images {
namespace {

// Integers of a file in its byte order. Outside of the file they are 0.
class ExifReader {
 public:
  ExifReader(std::string_view tiff, bool big_endian) : tiff_(tiff), big_endian_(big_endian) {}

  uint32_t Read(size_t at, size_t bytes) const {
    if (at > tiff_.size() || tiff_.size() - at < bytes) return 0;
    uint32_t value = 0;
    for (size_t i = 0; i < bytes; ++i) {
      const size_t place = big_endian_ ? i : bytes - 1 - i;
      value = value << 8 | static_cast<unsigned char>(tiff_[at + place]);
    }
    return value;
  }

 private:
  const std::string_view tiff_;
  const bool big_endian_;
};

// The pixel of the file that is at (x, y) of the upright image.
struct Source {
  int32_t orientation, width, height;  // of the file

  bool turned() const { return orientation >= 5; }
  std::pair<int32_t, int32_t> operator()(int32_t x, int32_t y) const {
    if (turned()) std::swap(x, y);
    const bool right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
    const bool bottom = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    return {right ? width - 1 - x : x, bottom ? height - 1 - y : y};
  }
};

Bitmap MakeUpright(Bitmap bitmap, int32_t orientation) {
  const Source source{orientation, bitmap.width, bitmap.height};
  if (orientation < 2 || orientation > 8) return bitmap;
  Bitmap upright{
      source.turned() ? bitmap.height : bitmap.width, source.turned() ? bitmap.width : bitmap.height, {}};
  upright.rgb.resize(bitmap.rgb.size());
  uint8_t* to = upright.rgb.data();
  for (int32_t y = 0; y < upright.height; ++y) {
    for (int32_t x = 0; x < upright.width; ++x) {
      const auto [from_x, from_y] = source(x, y);
      const uint8_t* from = &bitmap.rgb[(static_cast<size_t>(from_y) * static_cast<size_t>(bitmap.width) +
                                         static_cast<size_t>(from_x)) *
                                        3];
      for (size_t channel = 0; channel < 3; ++channel) *to++ = from[channel];
    }
  }
  return upright;
}

// The name of a format that people send, but that is not decoded; empty: it is unknown.
std::string_view OtherFormat(std::string_view file) {
  struct Signature {
    size_t at;
    std::string_view bytes, name;
  };
  for (const Signature& known :
       {Signature{0, "GIF8", "GIF"}, Signature{0, "BM", "BMP"},
        Signature{0, std::string_view("II*\0", 4), "TIFF"},
        Signature{0, std::string_view("MM\0*", 4), "TIFF"}, Signature{4, "ftypavif", "AVIF"},
        Signature{4, "ftyp", "HEIF"}, Signature{0, "%PDF", "PDF"}, Signature{0, "<svg", "SVG"}}) {
    if (file.size() >= known.at && file.substr(known.at).starts_with(known.bytes)) return known.name;
  }
  return {};
}

}  // namespace

api::Result<Bitmap> MakeBitmap(int64_t width, int64_t height) {
  if (width < 1 || height < 1) {
    return api::Fail(api::ErrorCode::kInvalidArgument, "the image has no pixels");
  }
  if (width > kSideMax || height > kSideMax || width * height > kPixelsMax) {
    return api::Fail(api::ErrorCode::kInvalidArgument,
                     fmt::format("the image has {} x {} pixels; at most {} in all and {} a side are decoded",
                                 width, height, kPixelsMax, kSideMax));
  }
  Bitmap bitmap{static_cast<int32_t>(width), static_cast<int32_t>(height), {}};
  bitmap.rgb.resize(static_cast<size_t>(width * height) * 3);
  return bitmap;
}

std::unexpected<api::Error> RefuseImage(std::string_view format, std::string_view reason) {
  return api::Fail(api::ErrorCode::kInvalidArgument,
                   fmt::format("the {} image is damaged: {}", format, reason));
}

int32_t OrientationOfExif(std::string_view exif) {
  constexpr std::string_view kHeader("Exif\0\0", 6);
  constexpr uint32_t kOrientation = 0x0112, kByte = 1, kShort = 3, kLong = 4;
  if (exif.starts_with(kHeader)) exif.remove_prefix(kHeader.size());
  const bool big_endian = exif.starts_with(std::string_view("MM\0*", 4));
  if (!big_endian && !exif.starts_with(std::string_view("II*\0", 4))) return 1;
  const ExifReader reader(exif, big_endian);
  const size_t directory = reader.Read(4, 4);
  const uint32_t entries = reader.Read(directory, 2);
  for (size_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + 12 * i;
    if (entry >= exif.size()) break;
    if (reader.Read(entry, 2) != kOrientation) continue;
    const uint32_t type = reader.Read(entry + 2, 2);
    if (type != kByte && type != kShort && type != kLong) return 1;
    const uint32_t value = reader.Read(entry + 8, type == kByte ? 1 : type == kShort ? 2 : 4);
    return value >= 1 && value <= 8 ? static_cast<int32_t>(value) : 1;
  }
  return 1;
}

api::Result<Bitmap> Decode(std::string_view file) {
  struct Format {
    bool (*matches)(std::string_view);
    api::Result<DecodedFile> (*decode)(std::string_view);
  };
  for (const Format& format :
       {Format{IsPng, DecodePng}, Format{IsJpeg, DecodeJpeg}, Format{IsWebp, DecodeWebp}}) {
    if (!format.matches(file)) continue;
    auto decoded = format.decode(file);
    if (!decoded) return std::unexpected(decoded.error());
    return MakeUpright(std::move(decoded->bitmap), decoded->orientation);
  }
  const std::string_view other = OtherFormat(file);
  return api::Fail(
      api::ErrorCode::kInvalidArgument,
      fmt::format("the image is not a PNG, JPEG or WebP file{}{}", other.empty() ? "" : " but ", other));
}

}  // namespace quire::runner::images
