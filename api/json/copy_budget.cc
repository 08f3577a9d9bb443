#include "api/json/copy_budget.h"

#include <fmt/format.h>

namespace quire::api {

bool CopyBudget::Spend(std::string_view field, size_t bytes, size_t copies, std::string_view whose) {
  if (copies == 0 || bytes == 0) return body_.ok();
  if (bytes > left_ / copies) {
    body_.Reject(field, fmt::format("results in more than {} bytes {}", kBodyBytesMax, whose),
                 ErrorCode::kTooLarge);
    return false;
  }
  left_ -= bytes * copies;
  return body_.ok();
}

}  // namespace quire::api
