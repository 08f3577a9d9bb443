#include "server/http/content_encoding.h"

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <random>

namespace quire::server {
namespace {

std::string Gzip(const std::string& text) {
  z_stream state = {};
  EXPECT_EQ(::deflateInit2(&state, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(::deflateBound(&state, text.size()) + 64, '\0');
  state.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  state.avail_in = static_cast<uInt>(text.size());
  state.next_out = reinterpret_cast<Bytef*>(out.data());
  state.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(::deflate(&state, Z_FINISH), Z_STREAM_END);
  out.resize(state.total_out);
  ::deflateEnd(&state);
  return out;
}

std::string Zstd(const std::string& text) {
  std::string out(::ZSTD_compressBound(text.size()), '\0');
  out.resize(::ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

// The decoded text, or the status of the failure.
std::string Decode(ContentEncoding encoding, const std::string& body, uint64_t bytes_max = 1 << 20,
                   size_t step = 1000) {
  BodyDecoder decoder(encoding, body, bytes_max);
  while (true) {
    const auto done = decoder.Step(step);
    if (!done) return std::to_string(done.error().status);
    if (*done) return decoder.MoveDecoded();
  }
}

ContentEncoding EncodingOf(const std::vector<std::string>& values, int& status) {
  HttpRequest request;
  for (const std::string& value : values) request.fields.push_back({"content-encoding", value});
  const auto encoding = ContentEncodingOf(request);
  status = encoding ? 200 : encoding.error().status;
  return encoding.value_or(ContentEncoding::kIdentity);
}

TEST(ContentEncoding, AStepMakesNoMoreThanItMay) {
  const std::string text(1 << 20, 'x');
  for (const auto& [encoding, body] :
       {std::pair(ContentEncoding::kGzip, Gzip(text)), std::pair(ContentEncoding::kZstd, Zstd(text))}) {
    BodyDecoder decoder(encoding, body, 1 << 20);
    constexpr size_t kStepBytes = 4096;
    size_t before = 0;
    for (bool done = false; !done;) {
      const auto step = decoder.Step(kStepBytes);
      ASSERT_TRUE(step);
      ASSERT_LE(decoder.decoded_bytes() - before, kStepBytes);
      before = decoder.decoded_bytes();
      done = *step;
    }
    EXPECT_EQ(decoder.MoveDecoded(), text);
  }
}

TEST(ContentEncoding, NamesOfEncodings) {
  int status = 0;
  EXPECT_EQ(EncodingOf({}, status), ContentEncoding::kIdentity);
  EXPECT_EQ(EncodingOf({"identity"}, status), ContentEncoding::kIdentity);
  EXPECT_EQ(EncodingOf({" GZIP "}, status), ContentEncoding::kGzip);
  EXPECT_EQ(EncodingOf({"x-gzip", "identity"}, status), ContentEncoding::kGzip);
  EXPECT_EQ(EncodingOf({"zstd"}, status), ContentEncoding::kZstd);
  EXPECT_EQ(status, 200);
  for (const std::vector<std::string>& values : std::vector<std::vector<std::string>>{
           {"br"}, {"deflate"}, {"gzip, zstd"}, {"gzip", "gzip"}, {"gzip;q=1"}}) {
    EncodingOf(values, status);
    EXPECT_EQ(status, 415) << values[0];
  }
}

TEST(ContentEncoding, BodiesComeOutAsTheyWere) {
  std::mt19937 random(1);
  for (const size_t size : {size_t{0}, size_t{1}, size_t{1000}, size_t{300'000}}) {
    std::string text(size, '\0');
    for (char& c : text) c = static_cast<char>(random() % 7);
    for (const size_t step : {size_t{1}, size_t{5000}, size_t{1} << 24}) {
      EXPECT_EQ(Decode(ContentEncoding::kGzip, Gzip(text), 1 << 20, step), text);
      EXPECT_EQ(Decode(ContentEncoding::kZstd, Zstd(text), 1 << 20, step), text);
    }
  }
  EXPECT_EQ(Decode(ContentEncoding::kGzip, Gzip("a") + Gzip("b")), "ab");
  EXPECT_EQ(Decode(ContentEncoding::kZstd, Zstd("a") + Zstd("b")), "ab");
}

TEST(ContentEncoding, BombsAndBrokenBodiesEndEarly) {
  const std::string zeros(50 << 20, '\0');
  for (const auto& [encoding, body] :
       {std::pair{ContentEncoding::kGzip, Gzip(zeros)}, {ContentEncoding::kZstd, Zstd(zeros)}}) {
    EXPECT_LT(body.size(), 100'000U);
    BodyDecoder decoder(encoding, body, 1 << 20);
    std::expected<bool, ParseFailure> done = false;
    while (done && !*done) done = decoder.Step(64 << 10);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().status, 413);
    EXPECT_LE(decoder.decoded_bytes(), 1U << 20);
  }
  const std::string text(5000, 'x');
  EXPECT_EQ(Decode(ContentEncoding::kGzip, Gzip(text), text.size()), text) << "exactly the bound";
  EXPECT_EQ(Decode(ContentEncoding::kGzip, Gzip(text), text.size() - 1), "413");
  for (const std::string& whole : {Gzip(text), Zstd(text)}) {
    const auto encoding = whole[0] == '\x1f' ? ContentEncoding::kGzip : ContentEncoding::kZstd;
    for (size_t cut = 1; cut < whole.size(); ++cut) {
      EXPECT_EQ(Decode(encoding, whole.substr(0, cut)), "400") << cut;
    }
    EXPECT_EQ(Decode(encoding, whole + "garbage"), "400");
  }
  EXPECT_EQ(Decode(ContentEncoding::kGzip, "{\"a\":1}"), "400");
  EXPECT_EQ(Decode(ContentEncoding::kZstd, "{\"a\":1}"), "400");
}

TEST(ContentEncoding, AFrameThatWantsALargeWindowIsRefused) {
  std::string text(1 << 20, '\0');
  std::string out(::ZSTD_compressBound(text.size()), '\0');
  ZSTD_CCtx* context = ::ZSTD_createCCtx();
  ::ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, 27);
  ::ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0);
  ZSTD_outBuffer made{out.data(), out.size(), 0};
  for (int i = 0; i < 2; ++i) {  // not in one piece, so that the encoder does not learn how little it needs
    ZSTD_inBuffer in{text.data(), text.size() / 2, 0};
    ::ZSTD_compressStream2(context, &made, &in, i == 0 ? ZSTD_e_continue : ZSTD_e_end);
  }
  ::ZSTD_freeCCtx(context);
  out.resize(made.pos);
  EXPECT_EQ(Decode(ContentEncoding::kZstd, out, 4 << 20), "400");
}

TEST(GzipEncoder, PiecesOfAnyKindComeBack) {
  std::mt19937_64 random(3);
  std::string noise(300'000, '\0');
  for (char& c : noise) c = static_cast<char>(random());
  for (const std::string& text : {std::string(), std::string("{}"), std::string(500'000, 'a'), noise}) {
    for (const size_t piece : {size_t{1000}, size_t{65'536}, size_t{1} << 20}) {
      GzipEncoder encoder;
      ASSERT_TRUE(encoder.ready());
      std::string encoded;
      std::string_view left = text;
      do {
        const std::string_view next = left.substr(0, piece);
        left.remove_prefix(next.size());
        encoded += encoder.Encode(next, left.empty());
      } while (!left.empty());
      EXPECT_EQ(Decode(ContentEncoding::kGzip, encoded, 1 << 20, 100'000), text)
          << text.size() << " " << piece;
    }
  }
}

}  // namespace
}  // namespace quire::server
