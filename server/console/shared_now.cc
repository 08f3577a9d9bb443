#include "server/console/shared_now.h"

namespace quire::server {

std::shared_ptr<const std::string> SharedNow::BodyFor(const Viewer& viewer, TimePoint now, bool with_recent) {
  const auto recent = with_recent ? std::optional(sources_.recent.added()) : std::nullopt;
  const Key key(viewer.admin, viewer.key, viewer.isolation, recent);
  if (const auto found = entries_.find(key); found != entries_.end() && now - found->second.made < age_max_) {
    return found->second.body;
  }
  std::erase_if(entries_, [&](const auto& entry) { return now - entry.second.made >= age_max_; });
  auto body = std::make_shared<const std::string>(EncodeNow(sources_, viewer, now, with_recent));
  entries_[key] = {body, now};
  return body;
}

}  // namespace quire::server
