#include "api/base/test_switch.h"

#include <cstdlib>

namespace quire::api {

const char* TestSwitch([[maybe_unused]] const char* name) {
#ifdef QUIRE_TEST_SWITCHES
  return std::getenv(name);
#else
  return nullptr;
#endif
}

}  // namespace quire::api
