#include "api/json/omitted_content.h"

#include <fmt/format.h>

#include <utility>

namespace quire::api {
namespace {

constexpr size_t kTypesMax = 16;      // that are logged
constexpr size_t kTypeBytesMax = 64;  // of one that nobody knows

// What the line calls it: "image" for "image_url", "input_image", "images".
std::string NameOf(std::string_view type) {
  for (const std::string_view known : {"image", "audio", "video", "document", "file"}) {
    if (type.find(known) != std::string_view::npos) return std::string(known);
  }
  return fmt::format("content of type \"{}\"", type.substr(0, kTypeBytesMax));
}

}  // namespace

std::string OmittedContent::LineFor(Fields& part, std::string_view field, std::string_view type, Turn turn,
                                    std::string message) {
  if (turn == Turn::kNow && !refused_) {
    refused_ = Error{ErrorCode::kUnsupported, std::move(message), part.PathOf(field)};
  }
  std::string name = NameOf(type);
  std::string line = fmt::format("[{} omitted: this model takes text only]", name);
  if (types_.size() < kTypesMax) types_.insert(std::move(name));
  return line;
}

void OmittedContent::AddImage(Message& message, Result<ImageFile> file, Turn turn, Error text_only) {
  images_.any = true;
  message.images.push_back({message.content.size(), file ? *file : nullptr});
  if (turn == Turn::kHistory) return;
  if (!images_.text_only) images_.text_only = std::move(text_only);
  if (!file && !images_.unreadable) images_.unreadable = std::move(file).error();
}

void OmittedContent::Finish(Fields& body, std::vector<std::string>& logged) const {
  if (!body.ok()) return;
  if (refused_) {
    body.error() = *refused_;
    return;
  }
  for (const std::string& type : types_) logged.push_back(fmt::format("messages: {} omitted", type));
}

}  // namespace quire::api
