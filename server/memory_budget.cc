#include "server/memory_budget.h"

#include <algorithm>

namespace quire::server {

MemoryBudget BudgetOf(uint64_t asked, const api::MemoryLimit& limit) {
  constexpr int64_t kReserveLeast = int64_t{256} << 20;
  const int64_t known = std::max<int64_t>(limit.bytes, 0);
  const int64_t share = known / (limit.from == "the machine" ? 8 : 16);
  const int64_t reserve = std::min(std::max(share, kReserveLeast), known / 4);
  if (asked > 0) return {static_cast<int64_t>(asked), "QUIRE_MEMORY", reserve};
  if (known == 0) return {};
  return {known - reserve, limit.from, reserve};
}

}  // namespace quire::server
