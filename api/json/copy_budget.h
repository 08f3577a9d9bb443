// Bounds what a request holds once its texts are copied: a count and a text of one body multiply to far more
// than the body.
#pragma once

#include <cstddef>
#include <string_view>

#include "api/base/limits.h"
#include "api/json/fields.h"

namespace quire::api {

// Spent by everything of one body that is copied. The copies together have at most kBodyBytesMax bytes.
class CopyBudget {
 public:
  explicit CopyBudget(Fields& body) : body_(body) {}

  // For `copies` copies of a text of `bytes`. Else false and kTooLarge, which names `field`; `whose` ends its
  // message: "for all choices". Call it before anything is copied.
  bool Spend(std::string_view field, size_t bytes, size_t copies, std::string_view whose);
  // The same for a text that one part has anyway: nothing is copied for a single one.
  bool Share(std::string_view field, size_t bytes, size_t parts, std::string_view whose) {
    return parts < 2 || Spend(field, bytes, parts, whose);
  }

 private:
  Fields& body_;
  size_t left_ = kBodyBytesMax;
};

}  // namespace quire::api
