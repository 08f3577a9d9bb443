#include "api/base/image_use.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

namespace quire::api {
namespace {

constexpr std::string_view kTextOnly = "[image omitted: this model takes text only]\n";
constexpr std::string_view kUnreadable = "[image omitted: it was not sent as base64]\n";

void SettleMessage(bool model_sees, Message& message) {
  const auto stays = [model_sees](const Image& image) { return model_sees && image.file != nullptr; };
  if (std::ranges::all_of(message.images, stays)) return;
  std::string content;
  std::vector<Image> images;
  size_t from = 0;
  for (Image& image : message.images) {
    content += std::string_view(message.content).substr(from, image.at - from);
    from = image.at;
    if (stays(image)) {
      images.push_back({content.size(), std::move(image.file)});
      continue;
    }
    if (!content.empty() && content.back() != '\n') content += '\n';
    content += model_sees ? kUnreadable : kTextOnly;
  }
  content += std::string_view(message.content).substr(from);
  message.content = std::move(content);
  message.images = std::move(images);
}

}  // namespace

Result<void> SettleImages(const ImageUse& use, bool model_sees, std::vector<Message>& messages) {
  if (const auto& refused = model_sees ? use.unreadable : use.text_only) return std::unexpected(*refused);
  for (Message& message : messages) SettleMessage(model_sees, message);
  return {};
}

void PrependText(Message& message, const std::string& text) {
  message.content.insert(0, text);
  for (Image& image : message.images) image.at += text.size();
}

void AppendContent(Message& message, std::string_view gap, const Message& from) {
  if (!message.content.empty() && !from.content.empty()) message.content += gap;
  const size_t base = message.content.size();
  message.content += from.content;
  for (const Image& image : from.images) message.images.push_back({base + image.at, image.file});
}

}  // namespace quire::api
