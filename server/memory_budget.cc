#include "server/memory_budget.h"

#include <algorithm>

namespace quire::server {

MemoryBudget BudgetOf(uint64_t asked, const api::MemoryLimit& limit) {
  if (asked > 0) return {static_cast<int64_t>(asked), "QUIRE_MEMORY"};
  if (limit.bytes <= 0) return {};
  constexpr int64_t kReserveLeast = int64_t{256} << 20;
  const int64_t share = limit.bytes / (limit.from == "the machine" ? 8 : 16);
  const int64_t reserve = std::min(std::max(share, kReserveLeast), limit.bytes / 4);
  return {limit.bytes - reserve, limit.from};
}

}  // namespace quire::server
