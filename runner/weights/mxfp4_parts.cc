#include "runner/weights/mxfp4_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "runner/weights/block_layouts.h"
#include "runner/weights/text.h"

namespace quire::runner::weights {
namespace {

constexpr std::string_view kBlocks = "_blocks", kScales = "_scales";
constexpr int64_t kBytesPerBlock = 16;

// The number of its rows and blocks agree, and a block has 16 bytes.
bool AreParts(const RawTensor& blocks, const RawTensor& scales) {
  return blocks.shape.size() >= 3 && blocks.shape.back() == kBytesPerBlock &&
         std::ranges::equal(std::span(blocks.shape).first(blocks.shape.size() - 1), scales.shape);
}

}  // namespace

void Mxfp4Parts::CopyRows(size_t first, size_t rows, std::byte* to) const {
  for (size_t b = first * row_blocks(); b < (first + rows) * row_blocks(); ++b, to += sizeof(BlockMXFP4)) {
    const std::byte* const pairs = quants.data() + b * kBytesPerBlock;
    const auto nibble = [&](size_t element) {
      return (pairs[element / 2] >> (element % 2 * 4)) & std::byte{15};
    };
    BlockMXFP4 block;
    block.e = scales[b];
    for (size_t j = 0; j < 16; ++j) block.qs[j] = nibble(j) | nibble(j + 16) << 4;
    std::memcpy(to, &block, sizeof(block));
  }
}

api::Result<std::vector<Mxfp4Parts>> FindMxfp4Parts(const ModelFiles& files) {
  std::vector<Mxfp4Parts> parts;
  size_t found = 0;
  for (const RawTensor& blocks : files.raw_tensors()) {
    if (!blocks.name.ends_with(kBlocks)) continue;
    const std::string name = blocks.name.substr(0, blocks.name.size() - kBlocks.size());
    const RawTensor* scales = files.FindRaw(name + std::string(kScales));
    if (scales == nullptr || !AreParts(blocks, *scales)) {
      return api::Fail(api::ErrorCode::kBadModel, fmt::format("{}: tensor {} has no scales of its shape",
                                                              files.path(), Quoted(blocks.name)));
    }
    std::vector<int64_t> shape = scales->shape;
    shape.back() *= BlockMXFP4::kElements;
    parts.push_back({name, std::move(shape), blocks.data, scales->data});
    found += 2;
  }
  if (found != files.raw_tensors().size()) {
    return api::Fail(
        api::ErrorCode::kBadModel,
        fmt::format("{}: there are bytes that are neither blocks nor scales of MXFP4", files.path()));
  }
  return parts;
}

}  // namespace quire::runner::weights
