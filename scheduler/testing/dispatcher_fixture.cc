#include "scheduler/testing/dispatcher_fixture.h"

namespace quire::scheduler {

const char* FakeRunnerPath() { return QUIRE_FAKE_RUNNER; }

}  // namespace quire::scheduler
