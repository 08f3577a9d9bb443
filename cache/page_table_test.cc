#include "cache/page_table.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <unordered_set>

namespace quire::cache {
namespace {

using Truth = std::map<int64_t, BlockId>;

class PageTableTest : public testing::Test {
 protected:
  PageTableTest() {
    auto pool = BlockPool::Create("test", 64, 20000, &budget_);
    pool_ = std::move(*pool);
  }

  static Truth Contents(const PageTable& table) {
    Truth truth;
    table.ForEach(0, INT64_MAX, [&](int64_t index, BlockId page) { truth[index] = page; });
    return truth;
  }

  PageTable Filled(int64_t from, int64_t to) {
    PageTable table(pool_.get());
    for (int64_t i = from; i < to; ++i) table.Put(i, pool_->Allocate());
    return table;
  }

  // Every reference count equals what the tables account for.
  void CheckReferences(std::initializer_list<const PageTable*> tables) {
    std::vector<uint32_t> counts;
    std::unordered_set<const PageTable::Node*> seen;
    for (const PageTable* table : tables) {
      table->Audit({.first_visit = [&](const auto* node) { return seen.insert(node).second; },
                    .leaf_page =
                        [&](BlockId page) {
                          if (counts.size() <= page) counts.resize(page + 1);
                          ++counts[page];
                        }});
    }
    const auto ok = pool_->CheckInvariants(counts);
    EXPECT_TRUE(ok.has_value()) << ok.error();
  }

  MemoryBudget budget_{64 * 20000};
  std::unique_ptr<BlockPool> pool_;
};

TEST_F(PageTableTest, ACopySharesPagesUntilOneSideWrites) {
  PageTable a = Filled(0, 1000);
  EXPECT_TRUE(a.Exclusive(999));
  {
    PageTable b = a;
    EXPECT_EQ(pool_->used(), 1000u);
    EXPECT_FALSE(a.Exclusive(999));
    b.Put(999, pool_->Allocate());
    EXPECT_TRUE(b.Exclusive(999));
    EXPECT_NE(a.Get(999), b.Get(999));
    EXPECT_EQ(a.Get(500), b.Get(500));
    EXPECT_TRUE(a.Exclusive(999));
    CheckReferences({&a, &b});
  }
  EXPECT_TRUE(a.Exclusive(500));
  EXPECT_EQ(pool_->used(), 1000u);
}

TEST_F(PageTableTest, AbsentIndicesAreNone) {
  PageTable table(pool_.get());
  EXPECT_EQ(table.Get(0), kNoBlock);
  table.Put(70, pool_->Allocate());
  EXPECT_EQ(table.Get(69), kNoBlock);
  EXPECT_EQ(table.Get(1 << 20), kNoBlock);
  table.Clip(71, 100);
  EXPECT_TRUE(table.empty());
  EXPECT_EQ(pool_->used(), 0u);
}

// Copies, cuts and joins of random tables against std::map.
TEST_F(PageTableTest, AgreesWithAMapOverRandomOperations) {
  std::mt19937 random(11);
  std::vector<PageTable> tables(4, PageTable(pool_.get()));
  std::vector<Truth> truth(4);
  for (int op = 0; op < 20000; ++op) {
    const size_t i = random() % 4;
    const size_t j = random() % 4;
    const auto a = static_cast<int64_t>(random() % 400);
    const auto b = static_cast<int64_t>(random() % 400);
    switch (random() % 5) {
      case 0:
      case 1: {
        const BlockId page = pool_->Allocate();
        tables[i].Put(a, page);
        truth[i][a] = page;
        break;
      }
      case 2:
        tables[i].Clip(std::min(a, b), std::max(a, b) + 100);
        std::erase_if(truth[i], [&](const auto& e) {
          return e.first < std::min(a, b) || e.first >= std::max(a, b) + 100;
        });
        break;
      case 3:
        tables[i] = tables[j];
        truth[i] = truth[j];
        break;
      default: {
        const size_t k = random() % 4;
        tables[i] = PageTable::Join(tables[j], tables[k], a);
        Truth joined(truth[j].begin(), truth[j].lower_bound(a));
        joined.insert(truth[k].lower_bound(a), truth[k].end());
        truth[i] = joined;
      }
    }
    ASSERT_EQ(Contents(tables[i]), truth[i]) << "operation " << op;
    ASSERT_EQ(tables[i].Get(a), truth[i].contains(a) ? truth[i][a] : kNoBlock);
    CheckReferences({&tables[0], &tables[1], &tables[2], &tables[3]});
    if (HasFailure()) FAIL() << "operation " << op;
  }
}

}  // namespace
}  // namespace quire::cache
