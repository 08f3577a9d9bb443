#include "api/base/options.h"

#include <gtest/gtest.h>

#include "api/base/error.h"

namespace quire::api {
namespace {

TEST(Options, TheUpperLayerWinsWhereItSaysSomething) {
  Options base;
  base.temperature = 0.5F;
  base.seed = 7;
  base.stop = {{"a"}};
  Options top;
  top.seed = 0;
  top.num_ctx = 128;
  const Options both = Overlay(base, top);
  EXPECT_EQ(both.temperature, 0.5F);
  EXPECT_EQ(both.seed, 0);
  EXPECT_EQ(both.num_ctx, 128);
  EXPECT_EQ(both.stop, std::vector<std::string>{"a"});
  EXPECT_FALSE(both.top_p);
}

TEST(Options, AnUnsaidOptionResolvesToItsDefault) {
  const GenerationParams params = Resolve({});
  EXPECT_EQ(params.num_ctx, 0);
  EXPECT_EQ(params.num_predict, -1);
  EXPECT_EQ(params.temperature, 0.8F);
  EXPECT_EQ(params.top_k, 40);
  EXPECT_EQ(params.top_p, 0.9F);
  EXPECT_EQ(params.repeat_last_n, 64);
  EXPECT_EQ(params.repeat_penalty, 1.0F);
  EXPECT_EQ(params.num_keep, 4);
  EXPECT_LT(params.seed, 0);
}

TEST(Options, ResolveGivesOnlyValuesTheRunnerTakes) {
  Options options;
  options.num_ctx = 1;
  options.repeat_penalty = 0.0F;
  options.num_keep = -5;
  options.repeat_last_n = -9;
  options.stop = {{"", "x", ""}};
  const GenerationParams params = Resolve(options);
  EXPECT_EQ(params.num_ctx, 4);
  EXPECT_EQ(params.repeat_penalty, 1.0F);
  EXPECT_EQ(params.num_keep, -1);
  EXPECT_EQ(params.repeat_last_n, -1);
  EXPECT_EQ(params.stop, std::vector<std::string>{"x"});
}

TEST(Options, OneThatIsSpecifiedIsKeptWhenOthersAreAdded) {
  Options own;
  own.num_ctx = 64;
  own.top_k = 3;
  own.stop_token_ids = std::vector<TokenId>();  // the last row
  Options added;
  added.top_k = 20;
  added.top_p = 0.5F;
  added.stop_token_ids = {{1}};
  const OptionBits bits = Specified(own);
  EXPECT_EQ(bits & 1U, 1U) << "num_ctx is the first row";
  const Options rest = Without(added, bits);
  EXPECT_FALSE(rest.top_k || rest.stop_token_ids);
  GenerationParams params = Resolve(own);
  Apply(rest, params);
  EXPECT_EQ(params.num_ctx, 64);
  EXPECT_EQ(params.top_k, 3);
  EXPECT_EQ(params.top_p, 0.5F);
  EXPECT_EQ(params.temperature, 0.8F);
  EXPECT_EQ(Specified({}), 0U);
}

TEST(HttpStatus, IsTotal) {
  EXPECT_EQ(HttpStatus(ErrorCode::kInvalidArgument), 400);
  EXPECT_EQ(HttpStatus(ErrorCode::kUnsupported), 400);
  EXPECT_EQ(HttpStatus(ErrorCode::kContextLengthExceeded), 400);
  EXPECT_EQ(HttpStatus(ErrorCode::kForbidden), 403);
  EXPECT_EQ(HttpStatus(ErrorCode::kNotFound), 404);
  EXPECT_EQ(HttpStatus(ErrorCode::kTooLarge), 413);
  EXPECT_EQ(HttpStatus(ErrorCode::kCancelled), 499);
  EXPECT_EQ(HttpStatus(ErrorCode::kInternal), 500);
  EXPECT_EQ(HttpStatus(ErrorCode::kBadModel), 500);
  EXPECT_EQ(HttpStatus(ErrorCode::kRunnerDied), 500);
  EXPECT_EQ(HttpStatus(ErrorCode::kOverloaded), 503);
  EXPECT_EQ(HttpStatus(ErrorCode::kUnavailable), 503);
  EXPECT_EQ(HttpStatus(ErrorCode::kUnauthorized), 401);
  EXPECT_EQ(HttpStatus(ErrorCode::kRateLimited), 429);
}

TEST(HttpStatus, HasAnInverse) {
  for (const ErrorCode code : {ErrorCode::kInvalidArgument, ErrorCode::kForbidden, ErrorCode::kNotFound,
                               ErrorCode::kTooLarge, ErrorCode::kCancelled, ErrorCode::kInternal,
                               ErrorCode::kOverloaded, ErrorCode::kUnauthorized, ErrorCode::kRateLimited}) {
    EXPECT_EQ(CodeOf(HttpStatus(code)), code) << Name(code);
  }
  EXPECT_EQ(CodeOf(408), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(502), ErrorCode::kInternal);
  EXPECT_EQ(CodeOf(302), ErrorCode::kInternal);
}

}  // namespace
}  // namespace quire::api
