#include <webp/decode.h>

#include <cstddef>
#include <utility>

#include "runner/images/decode.h"
#include "runner/images/decoders.h"

namespace quire::runner::images {
namespace {

size_t ReadLittleEndian(std::string_view bytes, size_t at, size_t count) {
  size_t value = 0;
  for (size_t i = count; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

constexpr size_t kRiffHeader = 12;  // "RIFF", size, "WEBP"
constexpr size_t kChunkHeader = 8;  // name, size

// The contents of the first chunk of this name; empty: there is none.
std::string_view FindChunk(std::string_view file, std::string_view name) {
  file.remove_prefix(kRiffHeader);
  while (file.size() >= kChunkHeader) {
    const size_t size = ReadLittleEndian(file, 4, 4);
    if (size > file.size() - kChunkHeader) break;
    if (file.starts_with(name)) return file.substr(kChunkHeader, size);
    const size_t padded = size + size % 2;
    if (padded > file.size() - kChunkHeader) break;
    file.remove_prefix(kChunkHeader + padded);
  }
  return {};
}

// A part of the canvas, and the data that it is decoded from.
struct Frame {
  size_t x = 0, y = 0, width = 0, height = 0;
  std::string_view data;
};

// The first frame of an animation. Its data are empty where there is none.
Frame FirstFrame(std::string_view file) {
  constexpr size_t kFrameHeader = 16;
  const std::string_view chunk = FindChunk(file, "ANMF");
  if (chunk.size() < kFrameHeader) return {};
  return {2 * ReadLittleEndian(chunk, 0, 3), 2 * ReadLittleEndian(chunk, 3, 3),
          ReadLittleEndian(chunk, 6, 3) + 1, ReadLittleEndian(chunk, 9, 3) + 1, chunk.substr(kFrameHeader)};
}

bool Features(std::string_view data, WebPBitstreamFeatures& features) {
  return WebPGetFeatures(reinterpret_cast<const uint8_t*>(data.data()), data.size(), &features) ==
         VP8_STATUS_OK;
}

}  // namespace

bool IsWebp(std::string_view file) {
  return file.size() >= kRiffHeader && file.starts_with("RIFF") && file.substr(8, 4) == "WEBP";
}

api::Result<DecodedFile> DecodeWebp(std::string_view file) {
  WebPBitstreamFeatures features;
  if (!Features(file, features)) return RefuseImage("WebP", "its header is not valid");
  auto bitmap = MakeBitmap(features.width, features.height);
  if (!bitmap) return std::unexpected(bitmap.error());
  const auto width = static_cast<size_t>(features.width);
  const auto height = static_cast<size_t>(features.height);
  Frame frame{0, 0, width, height, file};
  if (features.has_animation != 0) {
    frame = FirstFrame(file);
    if (frame.data.empty()) return RefuseImage("WebP", "it ends before its first frame");
    if (frame.width > width || frame.x > width - frame.width || frame.height > height ||
        frame.y > height - frame.height) {
      return RefuseImage("WebP", "its first frame is larger than the image");
    }
    if (!Features(frame.data, features) || static_cast<size_t>(features.width) != frame.width ||
        static_cast<size_t>(features.height) != frame.height || features.has_animation != 0) {
      return RefuseImage("WebP", "the header of its first frame is not valid");
    }
  }
  const size_t stride = 3 * width;
  const size_t before = frame.y * stride + 3 * frame.x;
  if (WebPDecodeRGBInto(reinterpret_cast<const uint8_t*>(frame.data.data()), frame.data.size(),
                        bitmap->rgb.data() + before, bitmap->rgb.size() - before,
                        static_cast<int>(stride)) == nullptr) {
    return RefuseImage("WebP", "pixels are missing or not valid");
  }
  return DecodedFile{std::move(*bitmap), OrientationOfExif(FindChunk(file, "EXIF"))};
}

}  // namespace quire::runner::images
