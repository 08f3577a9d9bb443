// The name that git gives to a file's bytes, by which hubs verify small files.
#pragma once

#include <string>
#include <string_view>

namespace quire::server::registry {

// 40 lower-case hex characters: SHA-1 of "blob <size>\0" and the bytes.
std::string GitHashOf(std::string_view bytes);

}  // namespace quire::server::registry
