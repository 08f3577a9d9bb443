#include <png.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <vector>

#include "runner/images/decode.h"
#include "runner/images/decoders.h"
#include "runner/work/work_budget.h"

namespace quire::runner::images {
namespace {

constexpr std::string_view kPngSignature("\x89PNG\r\n\x1a\n", 8);
constexpr png_alloc_size_t kChunkBytesMax = 1 << 20;  // of what is kept besides pixels

// libpng reports errors by longjmp: the functions that call it have no objects with destructors.
class PngReader {
 public:
  explicit PngReader(std::string_view file) : file_(file) {}
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }

  // False: error() says why.
  bool ReadHeader() {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, &OnError, &OnWarning);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    if (info_ == nullptr) return false;
    if (setjmp(png_jmpbuf(png_)) != 0) return false;  // NOLINT(cert-err52-cpp)
    // The sides are checked where the pixels are allocated.
    png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_set_chunk_malloc_max(png_, kChunkBytesMax);
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
    png_set_read_fn(png_, this, &OnRead);
    png_read_info(png_, info_);
    return true;
  }

  uint32_t width() const { return png_get_image_width(png_, info_); }
  uint32_t height() const { return png_get_image_height(png_, info_); }
  // Gray of 16 bits, which is cut off at 255 and not scaled, as Pillow does it.
  bool deep_gray() const {
    return png_get_bit_depth(png_, info_) == 16 && png_get_color_type(png_, info_) == PNG_COLOR_TYPE_GRAY;
  }

  // Prepares for ReadRows(), which fills rows of row_bytes().
  bool Start() {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;  // NOLINT(cert-err52-cpp)
    const int type = png_get_color_type(png_, info_);
    if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png_);
    if (type == PNG_COLOR_TYPE_GRAY && png_get_bit_depth(png_, info_) < 8)
      png_set_expand_gray_1_2_4_to_8(png_);
    if (!deep_gray()) {
      png_set_strip_16(png_);
      png_set_strip_alpha(png_);
      if (type == PNG_COLOR_TYPE_GRAY || type == PNG_COLOR_TYPE_GRAY_ALPHA) png_set_gray_to_rgb(png_);
    }
    passes_ = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return true;
  }
  size_t row_bytes() const { return png_get_rowbytes(png_, info_); }

  bool ReadRows(uint8_t* rows, uint32_t height, size_t stride) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;  // NOLINT(cert-err52-cpp)
    for (int pass = 0; pass < passes_; ++pass) {
      for (uint32_t row = 0; row < height; ++row) {
        CountWork(stride);
        png_read_row(png_, rows + row * stride, nullptr);
      }
    }
    return true;
  }

  std::string_view error() const { return error_.data(); }

 private:
  [[noreturn]] static void OnError(png_structp png, png_const_charp message) {
    auto& error = static_cast<PngReader*>(png_get_error_ptr(png))->error_;
    std::snprintf(error.data(), error.size(), "%s", message);
    png_longjmp(png, 1);
  }
  static void OnWarning(png_structp, png_const_charp) {}
  static void OnRead(png_structp png, png_bytep to, size_t bytes) {
    auto& self = *static_cast<PngReader*>(png_get_io_ptr(png));
    if (bytes > self.file_.size()) png_error(png, "it ends early");
    std::memcpy(to, self.file_.data(), bytes);
    self.file_.remove_prefix(bytes);
  }

  std::string_view file_;  // what has not been read yet
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  int passes_ = 1;
  std::array<char, 128> error_ = {"not enough memory"};
};

// The contents of the chunk eXIf; empty: there is none.
std::string_view FindPngExif(std::string_view file) {
  file.remove_prefix(kPngSignature.size());
  constexpr size_t kFrame = 12;  // length and name before the contents, checksum behind
  while (file.size() >= kFrame) {
    size_t length = 0;
    for (const char byte : file.substr(0, 4)) length = length << 8 | static_cast<unsigned char>(byte);
    if (length > file.size() - kFrame) break;
    if (file.substr(4, 4) == "eXIf") return file.substr(8, length);
    file.remove_prefix(kFrame + length);
  }
  return {};
}

}  // namespace

bool IsPng(std::string_view file) { return file.starts_with(kPngSignature); }

api::Result<DecodedFile> DecodePng(std::string_view file) {
  const auto fail = [](const PngReader& reader) { return RefuseImage("PNG", reader.error()); };
  PngReader reader(file);
  if (!reader.ReadHeader()) return fail(reader);
  const uint32_t height = reader.height();
  const bool deep_gray = reader.deep_gray();
  auto bitmap = MakeBitmap(reader.width(), height);
  if (!bitmap) return std::unexpected(bitmap.error());
  if (!reader.Start()) return fail(reader);
  const size_t stride = size_t{3} * reader.width();
  if (reader.row_bytes() != (deep_gray ? size_t{2} * reader.width() : stride)) {
    return RefuseImage("PNG", "its rows have an unexpected size");
  }
  if (deep_gray) {
    // The rows of an interlaced image are completed in passes: all of them are kept.
    std::vector<uint8_t> gray(reader.row_bytes() * height);
    if (!reader.ReadRows(gray.data(), height, reader.row_bytes())) return fail(reader);
    for (size_t i = 0; i < gray.size() / 2; ++i) {
      const uint8_t value = gray[2 * i] != 0 ? 255 : gray[2 * i + 1];
      std::fill_n(&bitmap->rgb[3 * i], 3, value);
    }
  } else if (!reader.ReadRows(bitmap->rgb.data(), height, stride)) {
    return fail(reader);
  }
  return DecodedFile{std::move(*bitmap), OrientationOfExif(FindPngExif(file))};
}

}  // namespace quire::runner::images
