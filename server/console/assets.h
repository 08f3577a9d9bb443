// The files of the console's page, compiled into the program. Immutable; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace quire::server {

struct Asset {
  std::string_view path;  // "/ui/app.css"
  std::string_view content_type;
  std::string_view etag;  // with its quotes; changes with the contents
  std::span<const unsigned char> gzip;
};

std::span<const Asset> AllAssets();

// The file of a request's path; "/ui/" is "/ui/index.html". Null: there is none.
const Asset* FindAsset(std::string_view path);

// The contents before compression, for a client that takes no gzip. I/O thread only.
const std::string& Uncompressed(const Asset& asset);

}  // namespace quire::server
