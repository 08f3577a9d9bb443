// Images of a request until its model is known. Where the model takes text only, and where an image's file is
// not in the request, those of the turn that the user is in are refused by name. In an earlier turn and in a
// tool's result a line stands for them, as refusing them there would lose the rest of the conversation.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "api/base/request.h"

namespace quire::api {

// What a dialect's parser leaves to SettleImages().
struct ImageUse {
  bool any = false;  // images in the messages; one that could not be read has no file yet
  // For the first image of the user's turn: what a model says that takes text only.
  std::optional<Error> text_only = {};
  // For the first of them that could not be read: what any other model says.
  std::optional<Error> unreadable = {};
};

// Makes of the messages, which have images, what a model takes that sees images, or one that does not.
Result<void> SettleImages(const ImageUse& use, bool model_sees, std::vector<Message>& messages);

// Puts `text` before the content of a message, whose images keep their places.
void PrependText(Message& message, const std::string& text);
// Appends the content of `from`, images too, with `gap` between two texts that are not empty.
void AppendContent(Message& message, std::string_view gap, const Message& from);

}  // namespace quire::api
