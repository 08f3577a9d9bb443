#include "runner/images/pixel_digest.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <string>

#include "api/base/sha256.h"

namespace quire::runner::images {
namespace {

TEST(PixelDigest, IsSha256InPiecesOfAnyLength) {
  std::string text;
  for (size_t length = 0; length < 300; ++length) {
    const std::span bytes(reinterpret_cast<const uint8_t*>(text.data()), length);
    for (const size_t cut : {size_t{0}, length / 3, length}) {
      PixelDigest digest;
      digest.Update(bytes.first(cut));
      digest.Update(bytes.subspan(cut));
      api::Sha256 reference;
      reference.Update(text);
      EXPECT_EQ(digest.Finish(), reference.FinishBytes()) << length;
    }
    text += static_cast<char>(length * 7);
  }
}

}  // namespace
}  // namespace quire::runner::images
