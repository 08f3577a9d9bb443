#include <cstddef>
#include <cstdio>

// Behind <cstdio>, which it does not include.
#include <jpeglib.h>

// Behind <jpeglib.h>, whose features its numbers depend on.
#include <jerror.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <utility>
#include <vector>

#include "runner/images/decode.h"
#include "runner/images/decoders.h"
#include "runner/work/work_budget.h"

namespace quire::runner::images {
namespace {

// A progressive image keeps its coefficients: 2 bytes for each value of a pixel.
constexpr long kJpegBytesMax = 256L << 20;
constexpr int kScansMax = 100;

// libjpeg reports errors by longjmp: the functions that call it have no objects with destructors.
class JpegReader {
 public:
  explicit JpegReader(std::string_view file) : file_(file) {}
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;
  ~JpegReader() { jpeg_destroy_decompress(&info_); }

  // False: error() says why.
  bool ReadHeader() {
    info_.err = jpeg_std_error(&errors_);
    info_.client_data = this;
    errors_.error_exit = &OnError;
    errors_.emit_message = &OnMessage;
    if (setjmp(jump_) != 0) return false;  // NOLINT(cert-err52-cpp)
    jpeg_create_decompress(&info_);
    info_.mem->max_memory_to_use = kJpegBytesMax;
    progress_.progress_monitor = &OnProgress;
    info_.progress = &progress_;
    jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(file_.data()), file_.size());
    jpeg_save_markers(&info_, JPEG_APP0 + 1, 0xffff);
    jpeg_read_header(&info_, TRUE);
    switch (info_.jpeg_color_space) {
      case JCS_GRAYSCALE:
        info_.out_color_space = JCS_GRAYSCALE;
        return true;
      case JCS_RGB:
      case JCS_YCbCr:
        info_.out_color_space = JCS_RGB;
        return true;
      case JCS_CMYK:
      case JCS_YCCK:
        info_.out_color_space = JCS_CMYK;
        return true;
      default:
        Remember("its colors are of an unknown kind");
        return false;
    }
  }

  int64_t width() const { return info_.image_width; }
  int64_t height() const { return info_.image_height; }
  size_t channels() const {
    return info_.out_color_space == JCS_GRAYSCALE ? 1 : info_.out_color_space == JCS_RGB ? 3 : 4;
  }

  bool Start() {
    if (setjmp(jump_) != 0) return false;  // NOLINT(cert-err52-cpp)
    jpeg_start_decompress(&info_);
    return true;
  }
  bool ReadRow(uint8_t* row) {
    if (setjmp(jump_) != 0) return false;  // NOLINT(cert-err52-cpp)
    return jpeg_read_scanlines(&info_, &row, 1) == 1;
  }

  // The first segment with EXIF data; empty: there is none.
  std::string_view Exif() const {
    for (const auto* marker = info_.marker_list; marker != nullptr; marker = marker->next) {
      const std::string_view segment(reinterpret_cast<const char*>(marker->data), marker->data_length);
      if (segment.starts_with(std::string_view("Exif\0\0", 6))) return segment;
    }
    return {};
  }
  std::string_view error() const { return error_.data(); }

 private:
  static JpegReader& SelfOf(j_common_ptr info) { return *static_cast<JpegReader*>(info->client_data); }
  void Remember(const char* reason) { std::snprintf(error_.data(), error_.size(), "%s", reason); }

  [[noreturn]] static void OnError(j_common_ptr info) {
    JpegReader& self = SelfOf(info);
    if (info->err->msg_code == JERR_NO_BACKING_STORE) {
      self.Remember("it has too many pixels for a progressive image");
    } else {
      std::array<char, JMSG_LENGTH_MAX> text = {};
      info->err->format_message(info, text.data());
      self.Remember(text.data());
    }
    std::longjmp(self.jump_, 1);  // NOLINT(cert-err52-cpp)
  }
  // Level -1 is a warning. Where pixels are made up, it is an error here.
  static void OnMessage(j_common_ptr info, int level) {
    if (level >= 0) return;
    switch (info->err->msg_code) {
      case JWRN_JPEG_EOF:
        SelfOf(info).Remember("it ends early");
        break;
      case JWRN_HIT_MARKER:
      case JWRN_HUFF_BAD_CODE:
      case JWRN_ARITH_BAD_CODE:
      case JWRN_MUST_RESYNC:
        SelfOf(info).Remember("pixels are missing");
        break;
      default:
        return;
    }
    std::longjmp(SelfOf(info).jump_, 1);  // NOLINT(cert-err52-cpp)
  }
  // An image of few bytes can have any number of scans, each of which goes over all pixels.
  static void OnProgress(j_common_ptr info) {
    const bool too_many = reinterpret_cast<j_decompress_ptr>(info)->input_scan_number > kScansMax;
    if (!too_many && !WorkMustStop()) return;
    SelfOf(info).Remember("it has too many scans");
    std::longjmp(SelfOf(info).jump_, 1);  // NOLINT(cert-err52-cpp)
  }

  const std::string_view file_;
  jpeg_decompress_struct info_ = {};
  jpeg_error_mgr errors_ = {};
  jpeg_progress_mgr progress_ = {};
  std::jmp_buf jump_ = {};
  std::array<char, JMSG_LENGTH_MAX> error_ = {"not enough memory"};
};

// Inverted, as Adobe's programs write it and every reader takes it.
void CmykToRgb(const uint8_t* cmyk, uint8_t* rgb) {
  const int32_t white = cmyk[3];
  for (size_t i = 0; i < 3; ++i) {
    const int32_t product = (255 - cmyk[i]) * white + 128;
    rgb[i] = static_cast<uint8_t>(std::clamp(white - ((product + (product >> 8)) >> 8), 0, 255));
  }
}

}  // namespace

bool IsJpeg(std::string_view file) { return file.starts_with("\xff\xd8\xff"); }

api::Result<DecodedFile> DecodeJpeg(std::string_view file) {
  const auto fail = [](const JpegReader& reader) {
    CheckWork();
    return RefuseImage("JPEG", reader.error());
  };
  JpegReader reader(file);
  if (!reader.ReadHeader()) return fail(reader);
  auto bitmap = MakeBitmap(reader.width(), reader.height());
  if (!bitmap) return std::unexpected(bitmap.error());
  if (!reader.Start()) return fail(reader);
  const auto width = static_cast<size_t>(bitmap->width);
  const size_t channels = reader.channels();
  std::vector<uint8_t> other(channels == 3 ? 0 : width * channels);
  uint8_t* row = bitmap->rgb.data();
  for (int32_t y = 0; y < bitmap->height; ++y, row += 3 * width) {
    CountWork(width);
    if (!reader.ReadRow(channels == 3 ? row : other.data())) return fail(reader);
    for (size_t x = 0; x < width && channels == 1; ++x) std::fill_n(&row[3 * x], 3, other[x]);
    for (size_t x = 0; x < width && channels == 4; ++x) CmykToRgb(&other[4 * x], &row[3 * x]);
  }
  return DecodedFile{std::move(*bitmap), OrientationOfExif(reader.Exif())};
}

}  // namespace quire::runner::images
