// Appends output chunks; adjacent ones of one kind are merged.
#pragma once

#include <string_view>

#include "runner/output/parser.h"

namespace quire::runner::output {

void AddText(OutputChunk::Kind kind, std::string_view text, OutputChunks& chunks);

// Gives each call an id unless it brings one.
void AddCalls(std::vector<api::ToolCall> calls, bool short_ids, OutputChunks& chunks);

}  // namespace quire::runner::output
