// `quire embed` and `quire rerank`. Each value is an exit code; errors go to stderr.
#pragma once

#include "server/cli/arguments.h"
#include "server/cli/client.h"

namespace quire::cli {

// A JSON line for each text, of the arguments or of standard input:
// {"index":0,"text":"...","embedding":[...]}.
int Embed(Client& client, const Arguments& arguments);
// A table of the documents, the best first; JSON lines with --json.
int Rerank(Client& client, const Arguments& arguments);

}  // namespace quire::cli
