#include "api/json/fields.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "api/json/type.h"

namespace quire::api {
namespace {

using Member = std::pair<const char*, int>;

// `others` more members around them, of names of their own.
Json ObjectOf(const std::vector<Member>& members, size_t others) {
  Json object = Json::object();
  const auto add_others = [&](char first) {
    for (size_t i = 0; i < others / 2; ++i) object[fmt::format("{}{}", first, i)] = -1;
  };
  add_others('a');
  for (const auto& [name, value] : members) object[name] = value;
  add_others('z');
  return object;
}

int ValueOf(const Json& object, std::string_view name) {
  FirstError error;
  Fields fields(object, "", error);
  const Json* found = fields.Find(name);
  return found == nullptr ? 0 : found->get<int>();
}

// However many members an object has.
TEST(Fields, NamesAreMatchedExactlyOrElseWithoutCase) {
  for (const size_t others : std::vector<size_t>{0, 20, 40, 1000}) {
    const Json object = ObjectOf({{"Top_K", 1}, {"model", 2}, {"MODEL", 3}, {"top_K", 4}, {"", 5}}, others);
    EXPECT_EQ(ValueOf(object, "model"), 2) << others;
    EXPECT_EQ(ValueOf(object, "MODEL"), 3) << others;
    EXPECT_EQ(ValueOf(object, "Model"), 3) << others;
    EXPECT_EQ(ValueOf(object, "top_k"), 4) << others;
    EXPECT_EQ(ValueOf(object, "Top_K"), 1) << others;
    EXPECT_EQ(ValueOf(object, ""), 5) << others;
    EXPECT_EQ(ValueOf(object, "mode"), 0) << others;
    EXPECT_EQ(ValueOf(object, "models"), 0) << others;
  }
}

TEST(Fields, WhatWasNotReadIsTheSameWithManyMembers) {
  for (const size_t others : std::vector<size_t>{0, 40}) {
    const Json object = ObjectOf({{"model", 1}, {"stream", 2}, {"seed", 3}}, others);
    FirstError error;
    Fields fields(object, "", error);
    EXPECT_TRUE(fields.Has("STREAM"));
    EXPECT_FALSE(fields.Has("streams"));
    std::vector<std::string> unread;
    fields.VisitUnread([&](std::string_view name) {
      if (name.size() > 3) unread.emplace_back(name);
      return true;
    });
    EXPECT_EQ(unread, (std::vector<std::string>{"model", "seed"})) << others;
  }
}

// A million names of a quarter of a million members: minutes, if each were compared with each.
TEST(Fields, AbsentNamesOfALargeObjectAreNotSearched) {
  const Json object = ObjectOf({{"model", 1}}, size_t{1} << 18);
  FirstError error;
  Fields fields(object, "", error);
  size_t found = 0;
  for (int i = 0; i < 1'000'000; ++i) found += fields.Has("unknown_name") ? 1 : 0;
  EXPECT_EQ(found, 0u);
  EXPECT_EQ(ValueOf(object, "model"), 1);
}

}  // namespace
}  // namespace quire::api
