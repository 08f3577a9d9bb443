#include "server/tier/prefix_archive.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

namespace quire::server {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// Two machines: a folder each, with secrets of their own.
class PrefixArchives : public ::testing::Test {
 protected:
  PrefixArchives() {
    std::string pattern = (fs::temp_directory_path() / "quire-archive-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    spdlog::set_level(spdlog::level::off);
    here_ = Open("here");
    there_ = Open("there");
  }
  ~PrefixArchives() override {
    spdlog::set_level(spdlog::level::info);
    fs::remove_all(folder_);
  }

  std::unique_ptr<DiskTier> Open(const char* name, uint64_t budget = 1 << 20) {
    auto tier = DiskTier::Open({.folder = folder_ / name, .budget_bytes = budget});
    EXPECT_TRUE(tier.has_value());
    return tier ? *std::move(tier) : nullptr;
  }
  static PrefixOrigin Hybrid() {
    return {.model = "m:latest",
            .program = "p1",
            .files = "quantize= kv=0 sha256-" + std::string(64, 'a'),
            .byte_class = "x86-64 v4",
            .isolation = "3:abcsalt",
            .segment_tokens = 4,
            .needs_state = true};
  }
  static std::vector<int32_t> Tokens(size_t count) {
    std::vector<int32_t> tokens(count);
    std::iota(tokens.begin(), tokens.end(), 100);
    return tokens;
  }
  static std::string ContentOf(const PrefixPiece& piece) {
    return fmt::format("{:>{}}", piece.to, piece.state ? 5000 : 900);
  }
  static SnapshotKey Put(DiskTier& tier, const PrefixOrigin& origin, size_t count) {
    const KeyChain chain(tier.RootOf(origin), Tokens(count), origin.segment_tokens);
    SnapshotKey last{};
    for (const PrefixPiece& piece : chain.Pieces(0, chain.tokens(), origin.needs_state)) {
      last = piece.key;
      if (tier.Has(piece.key)) continue;
      const std::string content = ContentOf(piece);
      const StoredSegment segment{
          piece.key, chain.Prefix(piece.begin()), piece.from, piece.to, piece.state, content.size()};
      auto writer = tier.Create(segment, chain.Tokens(piece.from, piece.to),
                                segment.begins_prefix() ? &origin : nullptr);
      EXPECT_TRUE(writer && writer->Write(content) && writer->Commit());
    }
    return last;
  }
  // Whether the tier has the prefix, with the bytes that were put.
  static bool Has(DiskTier& tier, const PrefixOrigin& origin, size_t count) {
    const KeyChain chain(tier.RootOf(origin), Tokens(count), origin.segment_tokens);
    return std::ranges::all_of(
        chain.Pieces(0, chain.tokens(), origin.needs_state), [&](const PrefixPiece& piece) {
          auto reader = tier.OpenSegment(piece.key);
          if (!reader) return false;
          std::string content(reader->bytes(), '\0');
          return reader->Read(content) && reader->Verify() && content == ContentOf(piece);
        });
  }
  static std::string Export(DiskTier& tier, const SnapshotKey& id) {
    auto archive = PrefixExport::Open(tier, id);
    EXPECT_TRUE(archive.has_value());
    std::string bytes;
    for (;;) {
      const auto piece = (*archive)->Next();
      EXPECT_TRUE(piece.has_value());
      if (!piece || piece->empty()) return bytes;
      bytes += *piece;
    }
  }
  static api::Result<Imported> Import(DiskTier& tier, std::string_view bytes, size_t piece = 1 << 20,
                                      PrefixImport::Settings settings = {.program = "p1"}) {
    PrefixImport import(tier, std::move(settings));
    for (size_t at = 0; at < bytes.size(); at += piece) {
      if (const auto written = import.Write(bytes.substr(at, piece)); !written)
        return std::unexpected(written.error());
    }
    return import.Finish();
  }

  fs::path folder_;
  std::unique_ptr<DiskTier> here_, there_;
};

TEST_F(PrefixArchives, APrefixTravelsToAnotherSecret) {
  const std::string file = Export(*here_, Put(*here_, Hybrid(), 10));
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{4096}, size_t{1} << 20}) {
    there_->PruneAll();
    const auto imported = Import(*there_, file, piece);
    ASSERT_TRUE(imported.has_value()) << imported.error().message;
    EXPECT_EQ(imported->tokens, 10u);
    EXPECT_EQ(imported->written, 4u);
    EXPECT_EQ(imported->models, std::vector<std::string>{"m:latest"});
    EXPECT_TRUE(Has(*there_, Hybrid(), 10)) << piece;
  }
  EXPECT_EQ(there_->Prefixes().size(), 1u);
  there_ = Open("there");
  EXPECT_TRUE(Has(*there_, Hybrid(), 10)) << "after another start";
  EXPECT_EQ(Import(*there_, file)->existing, 4u) << "nothing is written twice";
}

TEST_F(PrefixArchives, SeveralPrefixesAreOneFile) {
  const std::string file =
      Export(*here_, Put(*here_, Hybrid(), 8)) + Export(*here_, Put(*here_, Hybrid(), 13));
  const auto imported = Import(*there_, file, 100);
  ASSERT_TRUE(imported.has_value());
  EXPECT_EQ(imported->ids.size(), 2u);
  EXPECT_TRUE(Has(*there_, Hybrid(), 8));
  EXPECT_TRUE(Has(*there_, Hybrid(), 13));
}

TEST_F(PrefixArchives, AnOwnerCanBeNamed) {
  const std::string file = Export(*here_, Put(*here_, Hybrid(), 10));
  ASSERT_TRUE(Import(*there_, file, 1 << 20, {.program = "p1", .tenant = "other"}).has_value());
  EXPECT_FALSE(Has(*there_, Hybrid(), 10)) << "it is not the first owner's";
  PrefixOrigin other = Hybrid();
  other.isolation = "5:othersalt";
  EXPECT_TRUE(Has(*there_, other, 10));
}

// A flipped bit anywhere: refused by name, and never a wrong byte in the tier.
TEST_F(PrefixArchives, DamageIsRefused) {
  const std::string file = Export(*here_, Put(*here_, Hybrid(), 6));
  for (size_t bit = 0; bit < file.size() * 8; bit += 131) {
    std::string changed = file;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    there_->PruneAll();
    const auto imported = Import(*there_, changed);
    ASSERT_FALSE(imported.has_value()) << bit;
    EXPECT_THAT(imported.error().message, ::testing::AnyOf(HasSubstr("the exported prefix is damaged"),
                                                           HasSubstr("not an exported prefix")));
    EXPECT_FALSE(Has(*there_, Hybrid(), 6)) << bit;
  }
  for (const size_t size : {size_t{0}, size_t{1}, size_t{31}, size_t{200}, file.size() - 1}) {
    const auto imported = Import(*there_, file.substr(0, size));
    ASSERT_FALSE(imported.has_value()) << size;
    EXPECT_THAT(imported.error().message, HasSubstr("damaged"));
  }
  EXPECT_FALSE(Import(*there_, file + "more").has_value());
  EXPECT_EQ(there_->stats().corrupt, 0u);
}

TEST_F(PrefixArchives, WhatWouldNeverBeUsedIsRefused) {
  const std::string file = Export(*here_, Put(*here_, Hybrid(), 10));
  const auto other = Import(*there_, file, 1 << 20, {.program = "p2"});
  ASSERT_FALSE(other.has_value());
  EXPECT_THAT(other.error().message, HasSubstr("another version of quire-runner"));
  const auto small = Open("small", 1000);
  const auto large = Import(*small, file);
  ASSERT_FALSE(large.has_value());
  EXPECT_EQ(large.error().code, api::ErrorCode::kTooLarge);
  PrefixOrigin local = Hybrid();
  local.files = "quantize= kv=0 model.gguf:1:2:3";
  const auto archive = PrefixExport::Open(*here_, Put(*here_, local, 10));
  ASSERT_FALSE(archive.has_value());
  EXPECT_EQ(archive.error().code, api::ErrorCode::kUnsupported);
}

TEST_F(PrefixArchives, ADamagedSegmentIsNotExported) {
  const SnapshotKey id = Put(*here_, Hybrid(), 10);
  const fs::path file = folder_ / "here" / (HexOf(here_->SegmentsOf(id)[1]) + ".quire-prefix");
  fs::resize_file(file, fs::file_size(file) - 1);
  EXPECT_FALSE(PrefixExport::Open(*here_, id).has_value());
  EXPECT_FALSE(PrefixExport::Open(*here_, id).has_value()) << "it is gone";
  EXPECT_FALSE(PrefixExport::Open(*here_, HashOf("none")).has_value());
}

}  // namespace
}  // namespace quire::server
