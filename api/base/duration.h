// Go's textual forms of durations and booleans, which clients and environment variables use.
#pragma once

#include <chrono>
#include <optional>
#include <string_view>

namespace quire::api {

// time.ParseDuration: "5m", "1h30m", "1.5s", "1500ms", "-1s", "0". nullopt for anything else, and for what 64
// bits of nanoseconds do not hold.
std::optional<std::chrono::nanoseconds> ParseGoDuration(std::string_view text);

// A Go duration, or an integer number of seconds: what OLLAMA_KEEP_ALIVE and OLLAMA_LOAD_TIMEOUT may hold.
std::optional<std::chrono::nanoseconds> ParseDurationOrSeconds(std::string_view text);

// strconv.ParseBool: 1 t T TRUE true True, 0 f F FALSE false False. nullopt for anything else.
std::optional<bool> ParseGoBool(std::string_view text);

}  // namespace quire::api
