// How much memory the loaded models may take together.
#pragma once

#include <cstdint>
#include <string>

#include "api/base/memory_limit.h"

namespace quire::server {

struct MemoryBudget {
  int64_t bytes = 0;  // 0 = no bound: nothing is known of the machine
  std::string from;   // "QUIRE_MEMORY", or where the limit stands
  int64_t reserve_bytes =
      0;  // what the limit leaves for this program and the system; 0 = nothing is known of the machine
};

// `asked` > 0 holds as it is. Otherwise the limit less a reserve for this program, the system and its file
// cache: a sixteenth of a control group's limit and an eighth of a machine, at least 256 MiB and at most a
// quarter. The reserve is this also where `asked` leaves more or less.
MemoryBudget BudgetOf(uint64_t asked, const api::MemoryLimit& limit);

}  // namespace quire::server
