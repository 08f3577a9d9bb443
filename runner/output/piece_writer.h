// Puts pieces out, neighbours of one kind as one.
#pragma once

#include <string_view>

#include "runner/output/parser.h"

namespace quire::runner::output {

void AddText(Piece::Kind kind, std::string_view text, Pieces& pieces);

// Gives each call an id unless it brings one.
void AddCalls(std::vector<api::ToolCall> calls, bool short_ids, Pieces& pieces);

}  // namespace quire::runner::output
