// A prefix as one file, which another machine's tier takes in.
//
// It names what the prefix depends on, and has its tokens, a table of its segments with the hashes of their
// content, a hash of all that, and the segments. It has no key: the tier that takes it in makes its own.
// Several archives behind each other are an archive of several prefixes.
//
// A prefix is as good as who sends it: its bytes cannot be checked against its tokens without computing them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "server/tier/disk_tier.h"

namespace quire::server {

// One thread at a time, not the I/O thread. The tier outlives it.
class PrefixExport {
 public:
  // kNotFound: there is no such prefix, or not all of it. kUnsupported: another machine cannot know its
  // model.
  static api::Result<std::unique_ptr<PrefixExport>> Open(DiskTier& tier, const SnapshotKey& id);
  // The next bytes; empty at the end. kNotFound: a segment is gone or damaged, and the archive cannot be
  // completed.
  api::Result<std::string> Next();

 private:
  explicit PrefixExport(DiskTier& tier) : tier_(tier) {}

  DiskTier& tier_;
  std::string head_;
  std::vector<SnapshotKey> keys_;
  std::vector<SnapshotKey> contents_;
  size_t at_ = 0;
  std::unique_ptr<DiskTier::Reader> reader_;
  uint64_t offset_ = 0;
};

struct Imported {
  std::vector<SnapshotKey> ids = {};
  std::vector<std::string> models = {};  // each once
  uint64_t tokens = 0;
  uint64_t written = 0;   // segments
  uint64_t existing = 0;  // segments that were there
};

// One thread at a time, not the I/O thread. The tier outlives it. What was taken in before an error stays.
class PrefixImport {
 public:
  struct Settings {
    std::string program;                     // as PrefixOrigin has it; others' prefixes are of no use
    std::optional<std::string> tenant = {};  // becomes the owner (api::Client::tenant)
  };
  PrefixImport(DiskTier& tier, Settings settings) : tier_(tier), settings_(std::move(settings)) {}

  // The next bytes of the archive. Errors say what is wrong with it; nothing can follow.
  api::Result<void> Write(std::string_view bytes);
  // After the last bytes.
  api::Result<Imported> Finish();

 private:
  struct Row {
    int64_t from = 0, to = 0;
    uint64_t state = 0, bytes = 0;
    SnapshotKey content{};
  };

  api::Result<bool> ParseHead();
  api::Result<void> StartPrefix(std::string_view head);
  api::Result<void> CheckRows() const;
  api::Result<bool> WriteSegment();
  api::Result<void> OpenWriter();

  DiskTier& tier_;
  const Settings settings_;
  std::string pending_;
  std::optional<KeyChain> chain_;  // of the prefix under way
  PrefixOrigin origin_;
  std::vector<PrefixPiece> pieces_;
  std::vector<Row> rows_;
  size_t at_ = 0;
  uint64_t offset_ = 0;
  std::unique_ptr<DiskTier::Writer> writer_;
  bool skipping_ = false;  // the segment is there
  Imported imported_;
};

}  // namespace quire::server
