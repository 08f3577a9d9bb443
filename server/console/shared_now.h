// What streams of /quire/now show, encoded once for all streams of a viewer: a page costs the I/O thread a
// write, not another look at every request. I/O thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include "server/console/now.h"

namespace quire::server {

class SharedNow {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // `sources` outlives it. What is older than `age_max` is encoded again.
  SharedNow(const NowSources& sources, std::chrono::nanoseconds age_max)
      : sources_(sources), age_max_(age_max) {}

  // With the recent requests it has all that had ended when it was asked for.
  std::shared_ptr<const std::string> BodyFor(const Viewer& viewer, TimePoint now, bool with_recent);

 private:
  // An admin; of which key; whose texts; with as many recent requests so far.
  using Key = std::tuple<bool, std::string, std::string, std::optional<uint64_t>>;
  struct Entry {
    std::shared_ptr<const std::string> body;
    TimePoint made;
  };

  const NowSources& sources_;
  const std::chrono::nanoseconds age_max_;
  std::map<Key, Entry> entries_;  // none older than age_max_ but the one asked for last
};

}  // namespace quire::server
