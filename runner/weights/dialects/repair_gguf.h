// Brings a GGUF file into the spelling that models and tokenizers read, whoever wrote it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api/base/error.h"
#include "runner/weights/gguf.h"

namespace quire::runner::weights {

struct GgufRepairs {
  std::vector<std::string> notes;  // a line for each repair, for people; empty: the file is as it should be
  std::shared_ptr<const void> memory;  // of tensors that do not lie in the file; outlives them
};

// Edits keys and tensors of `contents` in place. `file` names the source in errors: kBadModel "FILE: KEY:
// reason" where the file contradicts itself.
api::Result<GgufRepairs> RepairGguf(GgufContents& contents, const std::string& file);

}  // namespace quire::runner::weights
