// Test only. A model whose KV is the token itself and whose recurrent state is a hash folded over every token
// so far (with Layout::stored_state one that kBF16 keeps whole), run through StepView exactly as kernels are,
// and checked against plain vectors of tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cache/hybrid_cache.h"
#include "cache/layout.h"
#include "cache/write.h"

namespace quire::cache {

// The slow, obviously right account of one sequence: its tokens. A key also holds the position it was rotated
// to.
using TokenList = std::vector<TokenId>;

// Layouts used all over the tests.
AttentionGroup FullGroup();
AttentionGroup WindowGroup(int32_t window);
AttentionGroup ChunkGroup(int32_t chunk);
AttentionGroup RowGroup(int32_t window = 0);  // rows without values, as of index keys
AttentionGroup BlockGroup(int32_t stride);    // a row of each block, made of all its tokens
RecurrentLayer ConvLayer();
RecurrentLayer DeltaLayer();
RecurrentLayer WideDeltaLayer();  // with stored_state of another size in a store

// First row that differs from `want`'s first bytes is reported, empty when all of `view` is right:
// for sequence i of `view`, whose tokens so far (and those of the step) are `tokens`, every page shows
// exactly the visible positions from oldest(offset) on, each with its token.
std::string CheckVisible(const Layout& layout, const StepView& view, size_t i, const TokenList& tokens);
// The slot of sequence i is the fold of `tokens`.
std::string CheckState(const Layout& layout, const StepView& view, size_t i, const TokenList& tokens);

// Runs one step: writes the new tokens' K and V, reads back what each of them sees, folds the recurrent
// state, fills captures and records. tokens[i] are all tokens of sequence i, the new ones last. Empty when
// all was right.
std::string RunStep(const Layout& layout, const StepView& step, std::span<const TokenList> tokens);

// One recurrent layer's update for one token, in place.
void FoldToken(const Layout& layout, size_t layer, std::byte* slot, TokenId token);

// Turns keys that RemoveRange moved to their new positions.
void RotateFakeKeys(const Layout& layout, const MovedKeys& moved);

// The replay of records that RunStep wrote.
void ReplayTokens(const Layout& layout, size_t layer, std::byte* slot, std::span<const std::byte> inputs,
                  int32_t tokens);

}  // namespace quire::cache
