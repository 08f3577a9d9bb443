// What a model's published processor does with an image before its vision tower sees it: resize, cut,
// normalize. Each family's own rules lie in a file of its own.
#pragma once

#include <memory>
#include <string>

#include "api/base/error.h"
#include "runner/images/bitmap.h"
#include "runner/images/prepared_image.h"
#include "runner/weights/model_files.h"

namespace quire::runner::images {

// Immutable; any thread.
class ImageProcessor {
 public:
  virtual ~ImageProcessor() = default;

  // What the model's chat template writes where an image stands: "<start_of_image>".
  virtual const std::string& placeholder() const = 0;
  // What stands for an image in a text where the template writes none: placeholder() with the markup that
  // such a template writes around it.
  virtual const std::string& text_placeholder() const { return placeholder(); }
  // The token whose rows in the prompt are those of an image: "<image_soft_token>".
  virtual const std::string& image_token() const = 0;
  // kInvalidArgument where the image cannot be resized so (sides that differ too much).
  virtual api::Result<PreparedImage> Prepare(const Bitmap& image) const = 0;
};

// The processor of a model with a vision tower: by config.json, processor_config.json and
// preprocessor_config.json of a directory, or by the keys clip.* of `projector`, which is the mmproj file, or
// the model's own file where that holds the tower too. Null: the files hold no tower, or the model's own hold
// one that is not known here, so that it serves text alone. kUnsupported names an unknown one of `projector`;
// kBadModel the key that is wrong.
api::Result<std::unique_ptr<const ImageProcessor>> ReadProcessor(const weights::ModelFiles& model,
                                                                 const weights::ModelFiles* projector);

}  // namespace quire::runner::images
