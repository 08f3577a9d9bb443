// AMX primitives for products with panels (int8_gemm.inl): integer products with whole groups of rows in
// tiles, all else by AVX-512 VNNI. Included inside an unnamed namespace, behind int8_gemm_avx512.inl.
//
// `Unit` is what has the tiles: the processor (int8_gemm_amx.cc) or a model of it (testing/amx_model.cc). Its
// members are instructions:
//   Configure(shape)           ldtilecfg; all tiles become zero
//   Release()                  tilerelease
//   Zero<t>()                  tilezero
//   Load<t>(from, stride)      tileloadd; rows are `stride` bytes apart
//   Store<t>(to, stride)       tilestored
//   DotSigned<sum, a, b>()     tdpbssd

template <class Unit>
struct Amx;

// A K block of a panel is a tile as it lies: of four elements each, the bytes of 16 outputs. So are the rows
// of a group. A tile of sums is their product.
template <class Unit, PanelFormat kFormat>
class TileDots {
 public:
  using Chunk = WeightChunk<Amx<Unit>, kFormat>;
  using Int = Avx512::Int;

  TileDots() { unit_.Configure(Shape()); }
  ~TileDots() { unit_.Release(); }
  TileDots(const TileDots&) = delete;
  TileDots& operator=(const TileDots&) = delete;

  // Subtracts the zero point from the chunk's weights, which are then signed bytes.
  void Begin(Chunk* chunk) {
    chunk_ = chunk;
    if constexpr (kFormat.zero_point_log2 >= 0) {
      const Int zero_point = _mm512_set1_epi8(static_cast<char>(1U << kFormat.zero_point_log2));
      for (size_t s = 0; s < chunk->count; ++s) {
        for (Int& weight : chunk->k_block[s].weight) weight = _mm512_sub_epi8(weight, zero_point);
      }
    }
  }

  // REQUIRES: count is that of the chunk; x is at its first K block and the group's row 0.
  void Multiply(const TileRows& x, size_t count) {
    if (count == Chunk::kKBlocks) {
      MultiplyChunk<0>(x);
    } else {
      for (size_t s = 0; s < count; ++s) MultiplyKBlock(s, x);
    }
  }

  template <int kRows, size_t kSum>
  QUIRE_INLINE void Get(size_t s, size_t row, const TileRows&, Int* dot) const {
#pragma GCC unroll 16
    for (size_t r = 0; r < static_cast<size_t>(kRows); ++r) {
      dot[r] = _mm512_load_si512(dots_[s][kSum][row + r]);
    }
  }

 private:
  static constexpr size_t kSums = Chunk::kSums;
  static constexpr size_t kDepth = kKBlock / kSums;  // elements of a sum
  static constexpr size_t kProducts = Chunk::kKBlocks * kSums;
  // Products under way: a store waits for its product, some fifty cycles, and what follows waits for the
  // store.
  static constexpr size_t kSumTiles = 4;
  static constexpr int kRowTiles = kSumTiles, kWeightTiles = kSumTiles + 2;

  // Takes full groups. A smaller one is multiplied with the quants behind it, whose sums nobody reads:
  // another shape costs as much as four products.
  static TileShape Shape() {
    constexpr size_t kRows = QuantizedActivations::kMaxGroupRows;
    TileShape shape;
    for (size_t t = 0; t < kSumTiles; ++t) {
      shape.Set(static_cast<int>(t), kRows, Avx512::kLanes * sizeof(int32_t));
    }
    for (int t = 0; t < 2; ++t) {
      shape.Set(kRowTiles + t, kRows, kDepth);
      shape.Set(kWeightTiles + t, kDepth / 4, sizeof(Int));
    }
    return shape;
  }

  // From step kStep on: a step begins a product of a whole chunk and stores the one that began kBehind steps
  // before.
  template <size_t kStep>
  QUIRE_INLINE void MultiplyChunk(const TileRows& x) {
    constexpr size_t kBehind = kSumTiles - 1;
    if constexpr (kStep < kProducts) Product<kStep>(kStep / kSums, x);
    if constexpr (kStep >= kBehind) Store<kStep - kBehind>((kStep - kBehind) / kSums);
    if constexpr (kStep + 1 < kProducts + kBehind) MultiplyChunk<kStep + 1>(x);
  }

  void MultiplyKBlock(size_t s, const TileRows& x) {
    Product<0>(s, x);
    if constexpr (kSums == 2) Product<1>(s, x);
    Store<0>(s);
    if constexpr (kSums == 2) Store<1>(s);
  }

  // Loads the sum kProduct mod kSums of K block `s` into a tile.
  template <size_t kProduct>
  QUIRE_INLINE void Product(size_t s, const TileRows& x) {
    constexpr size_t kSum = kProduct % kSums;
    constexpr int kSumTile = kProduct % kSumTiles, kRowTile = kRowTiles + kProduct % 2,
                  kWeightTile = kWeightTiles + kProduct % 2;
    unit_.template Zero<kSumTile>();
    unit_.template Load<kRowTile>(x.quants + s * x.count * kKBlock + kSum * kDepth, kKBlock);
    unit_.template Load<kWeightTile>(chunk_->k_block[s].weight + kSum * kDepth / 4, sizeof(Int));
    unit_.template DotSigned<kSumTile, kRowTile, kWeightTile>();
  }
  template <size_t kProduct>
  QUIRE_INLINE void Store(size_t s) {
    unit_.template Store<kProduct % kSumTiles>(dots_[s][kProduct % kSums][0],
                                               Avx512::kLanes * sizeof(int32_t));
  }

  Unit unit_;
  Chunk* chunk_ = nullptr;
  alignas(64) int32_t dots_[Chunk::kKBlocks][kSums][QuantizedActivations::kMaxGroupRows][Avx512::kLanes];
};

template <class Unit>
struct Amx : Avx512 {
  static constexpr bool kLeavesFewRows = true;
  // With fewer rows, most of a tile would be empty.
  template <PanelFormat>
  static constexpr size_t kManyRows = 13;
  static constexpr size_t kChunk = 256;  // its integer sums stay in the first-level cache, too
  template <PanelFormat kFormat>
  using ChunkDots = TileDots<Unit, kFormat>;
  template <PanelFormat>
  static constexpr int kChunkRows = 16;
};
