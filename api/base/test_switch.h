// Environment variables that only tests set.
#pragma once

namespace quire::api {

// The value of the variable, or null if it is not set. In a build without tests (QUIRE_BUILD_TESTS) always
// null: no variable changes what a product does. REQUIRES: nobody sets variables at the same time.
const char* TestSwitch(const char* name);

}  // namespace quire::api
