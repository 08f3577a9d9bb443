// The library's own destroy() allocates. Where a preparation has met its bound of memory
// (runner/work/work_memory.h) the runner would stop: destructors may not throw.
#include <nlohmann/json.hpp>

namespace nlohmann {

template <>
void quire::api::Json::json_value::destroy(value_t type) {
  switch (type) {
    case value_t::object:
      delete object;
      break;
    case value_t::array:
      delete array;
      break;
    case value_t::string:
      delete string;
      break;
    case value_t::binary:
      delete binary;
      break;
    default:
      break;
  }
}

}  // namespace nlohmann
