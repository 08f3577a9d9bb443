#include "server/cli/fleet.h"

#include <gtest/gtest.h>

namespace quire::cli {
namespace {

TEST(FleetTable, ShowsLoadModelsAndPrefixesOfEachNode) {
  server::NodeReport report{.ready = true, .pending_prefill_seconds = 2.25, .running = 3, .waiting = 1};
  report.models["quire-demo:latest"].loaded = true;
  report.models["waiting:latest"].loaded = false;
  report.memory_bytes = 5'800'000;
  report.prefixes = 12;
  report.prefix_bytes = 1'900'000;
  report.disk_bytes = 20'000'000;
  EXPECT_EQ(FleetTable({{"one", report}, {"two", api::Fail(api::ErrorCode::kUnavailable, "two: refused")}}),
            "NODE    STATE          RUNNING    WAITING    PREFILL    PREFIXES                   MEMORY    "
            "LOADED MODELS\n"
            "one     ready          3          1          2.2 s      12 (1.9 MB), disk 20 MB    5.8 MB    "
            "quire-demo:latest\n"
            "two     unreachable    -          -          -          -                          -         -\n"
            "\n"
            "two: refused\n");
}

}  // namespace
}  // namespace quire::cli
