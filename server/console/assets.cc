#include "server/console/assets.h"

#include <zlib.h>

#include <algorithm>
#include <map>
#include <stdexcept>

namespace quire::server {

const Asset* FindAsset(std::string_view path) {
  if (path == "/ui/") path = "/ui/index.html";
  const auto all = AllAssets();
  const auto found = std::ranges::find(all, path, &Asset::path);
  return found == all.end() ? nullptr : &*found;
}

namespace {

std::string Inflate(const Asset& asset) {
  constexpr int kGzipWindowBits = 15 + 16;
  z_stream stream{};
  if (::inflateInit2(&stream, kGzipWindowBits) != Z_OK) throw std::bad_alloc();
  // The last four bytes of a gzip member are the contents' length, low byte first.
  size_t length = 0;
  for (size_t i = 0; i < 4; ++i) length = length << 8 | asset.gzip[asset.gzip.size() - 1 - i];
  std::string out(length, '\0');
  stream.next_in = const_cast<unsigned char*>(asset.gzip.data());  // zlib reads it only
  stream.avail_in = static_cast<unsigned>(asset.gzip.size());
  stream.next_out = reinterpret_cast<unsigned char*>(out.data());
  stream.avail_out = static_cast<unsigned>(out.size());
  const int result = ::inflate(&stream, Z_FINISH);
  ::inflateEnd(&stream);
  if (result != Z_STREAM_END) throw std::runtime_error("a compiled-in file is broken");
  return out;
}

}  // namespace

// Each is made once: many may ask for it.
const std::string& Uncompressed(const Asset& asset) {
  static std::map<std::string_view, std::string> made;
  std::string& text = made[asset.path];
  if (text.empty()) text = Inflate(asset);
  return text;
}

}  // namespace quire::server
