// How much memory formats have that are in use.
#include <gmock/gmock.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "runner/constraint/output_format.h"
#include "runner/constraint/regex.h"
#include "runner/constraint/testing/byte_matching.h"
#include "runner/work/work_budget.h"

namespace quire::runner::constraint {
namespace {

using testing::HasSubstr;

constexpr size_t kBudget = size_t{4} << 20;
constexpr size_t kGrammars = kBudget / 4 * 3;

class FormatsInUse : public testing::Test {
 protected:
  using Held = std::deque<std::shared_ptr<Constraint>>;

  // Some 100 KB, another one for each number below 1,000. Nothing: it has to wait.
  std::shared_ptr<Constraint> Get(int number, const std::string& party, bool may_wait = true) {
    const std::string pattern = "[a-z]{" + std::to_string(5000 + number) + "}";
    const auto make = [&](GrammarBuilder&) { return Regex(pattern, Anchoring::kWhole, Utf8); };
    try {
      return cache_.Get(pattern, make, {.party = fair::PartyNamed(party), .may_wait = may_wait}).value();
    } catch (const WorkStopped& stopped) {
      EXPECT_EQ(stopped.reason, WorkStopped::Reason::kFormatMemory);
      EXPECT_FALSE(cache_.MayBegin(fair::PartyNamed(party)));
      return nullptr;
    }
  }
  // Until it has to wait; all different.
  void GetMany(const std::string& party, Held& held) {
    while (auto constraint = Get(next_++, party)) {
      held.push_back(std::move(constraint));
      ASSERT_LT(held.size(), 500U);
    }
  }
  static size_t BytesOf(const Held& held) {
    size_t bytes = 0;
    for (const auto& constraint : held) bytes += constraint->grammar().bytes();
    return bytes;
  }

  const TestVocabulary vocabulary_;
  ConstraintCache cache_{[this] { return vocabulary_.Index(); }, kBudget};
  int next_ = 0;
};

TEST_F(FormatsInUse, APartyHasNoMoreThanIsLeft) {
  Held held;
  GetMany("a", held);
  EXPECT_GT(held.size(), 4U);
  EXPECT_LE(BytesOf(held), kGrammars / 2 + cache_.grammar_bytes_max());
  EXPECT_GE(cache_.bytes_in_use(), BytesOf(held));
  // Others find something.
  Held of_other;
  GetMany("b", of_other);
  EXPECT_GT(of_other.size(), 2U);
  EXPECT_TRUE(Get(next_++, "c"));
  EXPECT_LE(cache_.bytes_in_use(), kGrammars);
}

TEST_F(FormatsInUse, OneThatIsGivenBackMakesRoomForAnother) {
  Held held;
  GetMany("a", held);
  const int waits = next_ - 1;
  for (int round = 0; round < 200; ++round) {
    EXPECT_FALSE(Get(waits + round, "a"));
    while (!cache_.MayBegin(fair::PartyNamed("a"))) held.pop_front();
    held.push_back(Get(waits + round, "a"));
    ASSERT_TRUE(held.back());
    EXPECT_LE(cache_.bytes_in_use(), kGrammars);
  }
  held.clear();
  EXPECT_EQ(cache_.bytes_in_use(), 0U);
  EXPECT_TRUE(cache_.MayBegin(fair::PartyNamed("a")));
}

TEST_F(FormatsInUse, WhoeverSharesOneDoesNotWait) {
  Held held;
  GetMany("a", held);
  const size_t in_use = cache_.bytes_in_use();
  for (int number = 0; number < std::ssize(held); ++number) {
    EXPECT_EQ(Get(number, "a"), held[static_cast<size_t>(number)]);
  }
  EXPECT_EQ(cache_.bytes_in_use(), in_use);
}

TEST_F(FormatsInUse, ACachedOneCountsWhileItIsUsed) {
  Get(0, "a").reset();
  EXPECT_EQ(cache_.size(), 1U);
  EXPECT_EQ(cache_.bytes_in_use(), 0U);
  const auto again = Get(next_++, "b");
  EXPECT_GT(cache_.bytes_in_use(), 0U);
  Held held;
  GetMany("a", held);
  EXPECT_EQ(cache_.size(), held.size() + 1);
}

// Those that nobody uses give way to those in use.
TEST_F(FormatsInUse, AllThatAreKeptAreBounded) {
  for (; next_ < 100; ++next_) Get(next_, "a").reset();
  const size_t kept = cache_.size();
  Held held;
  GetMany("a", held);
  EXPECT_LT(cache_.size(), kept + 2);
  const size_t one = BytesOf(held) / held.size();
  EXPECT_LE(cache_.size() * one, kGrammars + one);
}

TEST_F(FormatsInUse, OneThatHasWaitedIsNotSentBack) {
  Held held;
  GetMany("a", held);
  EXPECT_TRUE(Get(next_++, "a", /*may_wait=*/false));
}

TEST_F(FormatsInUse, OneThatIsTooLargeIsAnErrorWithItsSize) {
  ConstraintCache cache([this] { return vocabulary_.Index(); }, size_t{1} << 18);
  const std::string pattern = "(a|b)*a(a|b){13}c";
  const auto compiled = cache.Get({api::OutputFormat::Kind::kRegex, pattern, "format"});
  ASSERT_FALSE(compiled);
  EXPECT_EQ(compiled.error().code, api::ErrorCode::kUnsupported);
  EXPECT_EQ(compiled.error().field, "format");
  EXPECT_THAT(compiled.error().message, HasSubstr("this model's formats may have 192 KiB each"));
  EXPECT_EQ(cache.bytes_in_use(), 0U);
  // An answer that began where it was not too large goes on.
  const auto make = [&](GrammarBuilder&) { return Regex(pattern, Anchoring::kWhole, Utf8); };
  EXPECT_FALSE(cache.Get(pattern, make, {.party = fair::PartyNamed("a")}));
  EXPECT_TRUE(cache.Get(pattern, make, {.party = fair::PartyNamed("a"), .resumed = true}));
}

// Each has less than its own limit.
TEST_F(FormatsInUse, MasksOfAllFormatsAreBoundedTogether) {
  constexpr size_t kMasks = size_t{32} << 10;
  const auto masks = std::make_shared<MaskMemory>(kMasks);
  const auto grammar = CompileFormat(SchemaFormat("{}")).value();
  std::vector<std::shared_ptr<Constraint>> all;
  size_t made = 0;
  for (int number = 0; number < 20; ++number) {
    all.push_back(std::make_shared<Constraint>(grammar, vocabulary_.Index(), masks));
    Matcher matcher(all.back());
    size_t before = masks->bytes();
    for (const char c : std::string(R"({"name":[1,"abc",true,{"id":null}],"k":-0.5e1})")) {
      matcher.Mask();
      ASSERT_TRUE(matcher.Accept(static_cast<api::TokenId>(2 + static_cast<uint8_t>(c))));
      made += masks->bytes() - std::min(before, masks->bytes());
      before = masks->bytes();
    }
    EXPECT_TRUE(matcher.Mask().Has(TestVocabulary::kEnd));
    EXPECT_LE(masks->bytes(), kMasks + kMasks / 4);
  }
  EXPECT_GT(made, 2 * kMasks);
  all.clear();
  EXPECT_EQ(masks->bytes(), 0U);
}

}  // namespace
}  // namespace quire::runner::constraint
