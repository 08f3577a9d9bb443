// Content that a model cannot take: audio, files, kinds of blocks that nobody knows here, and images of a
// model of text.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "api/base/image_use.h"
#include "api/base/request.h"
#include "api/json/fields.h"
#include "api/json/image_fields.h"

namespace quire::api {

// Belongs to one request. In the turn that the user is in such content is refused by name; in an earlier turn
// and in a tool's result a line stands for it, as refusing it there would lose the rest of the conversation.
// Images stay in the messages until the model is known (SettleImages).
class OmittedContent {
 public:
  // The line for the content `type` ("image_url") at `part`, whose `field` an error names. kNow: an error,
  // unless an answer follows.
  enum class Turn : uint8_t { kNow, kHistory };
  std::string LineFor(Fields& part, std::string_view field, std::string_view type, Turn turn,
                      std::string message);

  // An image behind the text of a message so far. `text_only`: the error of a model that takes no images.
  void AddImage(Message& message, Result<ImageFile> file, Turn turn, Error text_only);
  const ImageUse& images() const { return images_; }

  // The assistant has answered: what came before is history.
  void AnswerFollows() {
    refused_.reset();
    images_.text_only.reset();
    images_.unreadable.reset();
  }

  // Behind the last message: fails the request, or adds what was omitted to the names that are logged.
  void Finish(Fields& body, std::vector<std::string>& logged) const;

 private:
  std::optional<Error> refused_;  // the first of the user's turn
  std::set<std::string> types_;
  ImageUse images_;
};

}  // namespace quire::api
