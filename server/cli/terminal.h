// Shared by the commands: the terminal, errors, and requests that report progress.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "api/base/error.h"
#include "server/cli/client.h"
#include "server/cli/progress.h"

namespace quire::cli {

// Columns of the terminal behind `file`; 0 = it is none.
int Columns(std::FILE* file);
// Its lines; 0 = it is none.
int Rows(std::FILE* file);

// Whether `file` is a terminal that understands escape sequences.
bool HasEscapes(std::FILE* file);
// Whether to write in color: HasEscapes, and the environment does not forbid it (NO_COLOR).
bool HasColors(std::FILE* file);

// Writes to stdout at once. kUnavailable with the reason when it cannot.
api::Result<void> WriteOut(std::string_view text);

// For the end of the program: `code`, or 1 with a message when what was written to stdout did not arrive.
int FlushOutput(int code);

// Prints "Error: ..." to stderr; the value is the exit code, 1.
int PrintError(const api::Error& error);

// Posts a request that answers with a progress stream and shows it. The value is the exit code.
int FollowProgress(Client& client, std::string_view path, std::string body, Progress& progress);

}  // namespace quire::cli
