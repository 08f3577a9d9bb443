// The stages of a model with a vision tower before its text model: pictures are decoded, prepared, placed in
// the prompt and encoded. Each is compared with what a reference recorded.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "api/base/error.h"
#include "runner/images/image_processor.h"
#include "runner/kernels/thread_pool.h"
#include "runner/models/vision_tower.h"
#include "runner/tokenizer/tokenizer.h"
#include "tests/golden/vision_golden.h"

namespace quire::runner::golden {

struct VisionParts {
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
  std::unique_ptr<const images::ImageProcessor> processor;
  std::unique_ptr<models::VisionTower> tower;  // null: the files have none
};

// kBadModel and kUnsupported name the file and the reason. `projector` may be empty. `published`: where it is
// a directory with a processor, that one counts for a GGUF file, which does not say all of its own.
api::Result<VisionParts> OpenVision(const std::filesystem::path& model,
                                    const std::filesystem::path& projector,
                                    const std::filesystem::path& published);

struct VisionStages {
  GoldenFile text;  // the golden's cases, on rows that this tower made of the pictures
  bool pass = true;
  std::vector<std::string> lines;
};

// Pixels must be the reference's but for rounding, those of JPEG files within a decoder's counts. Ids and
// positions must be equal, embeddings within `tolerance`, and bit-identical in slices and beside others.
// kNotFound and kBadModel name the picture or the file. REQUIRES: parts.tower.
api::Result<VisionStages> RunVisionStages(VisionParts& parts, const std::filesystem::path& directory,
                                          VisionGolden& golden, float tolerance, ThreadPool& pool);

}  // namespace quire::runner::golden
