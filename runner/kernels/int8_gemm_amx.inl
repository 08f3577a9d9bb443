// AMX primitives for products with panels (int8_gemm.inl): integer products with whole groups of rows in tiles, all
// else as with AVX-512 VNNI. Included inside an unnamed namespace, behind int8_gemm_avx512.inl.
//
// `Unit` is what has the tiles: the processor (int8_gemm_amx.cc) or a model of it (testing/amx_model.cc). Its members
// are instructions:
//   Configure(shape)           ldtilecfg; all tiles become zero
//   Release()                  tilerelease
//   Zero<t>()                  tilezero
//   Load<t>(from, stride)      tileloadd; rows are `stride` bytes apart
//   Store<t>(to, stride)       tilestored
//   DotSigned<sum, a, b>()     tdpbssd

template <class Unit>
struct Amx;

// A K block of a panel is a tile as it lies: of four elements each, the bytes of 16 outputs. So are the rows of a
// group. A tile of sums is their product.
template <class Unit, PanelFormat kFormat>
class TileDots {
 public:
  using Chunk = WeightChunk<Amx<Unit>, kFormat>;
  using Int = Avx512::Int;

  TileDots() = default;
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
  void Multiply(TileRows x, size_t count) {
    if (rows_ != x.count) {
      unit_.Configure(ShapeOf(x.count));
      rows_ = x.count;
    }
    // Two sets of tiles, so that a product need not wait for the one before.
    for (size_t s = 0; s < count; ++s, x.Next()) {
      const Int* const weights = chunk_->k_block[s].weight;
      if constexpr (kSums == 2) {
        Product<0>(x.quants, weights, dots_[s][0][0]);
        Product<1>(x.quants + kDepth, weights + kDepth / 4, dots_[s][1][0]);
      } else if (s % 2 == 0) {
        Product<0>(x.quants, weights, dots_[s][0][0]);
      } else {
        Product<1>(x.quants, weights, dots_[s][0][0]);
      }
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

  template <int kSet>
  static constexpr int kSumTile = 3 * kSet;
  template <int kSet>
  static constexpr int kRowTile = 3 * kSet + 1;
  template <int kSet>
  static constexpr int kWeightTile = 3 * kSet + 2;

  static TileShape ShapeOf(size_t rows) {
    TileShape shape;
    const auto set = [&]<int kSet>() {
      shape.Set(kSumTile<kSet>, rows, Avx512::kLanes * sizeof(int32_t));
      shape.Set(kRowTile<kSet>, rows, kDepth);
      shape.Set(kWeightTile<kSet>, kDepth / 4, sizeof(Int));
    };
    set.template operator()<0>();
    set.template operator()<1>();
    return shape;
  }

  template <int kSet>
  QUIRE_INLINE void Product(const int8_t* x, const Int* weights, int32_t* to) {
    unit_.template Zero<kSumTile<kSet>>();
    unit_.template Load<kRowTile<kSet>>(x, kKBlock);
    unit_.template Load<kWeightTile<kSet>>(weights, sizeof(Int));
    unit_.template DotSigned<kSumTile<kSet>, kRowTile<kSet>, kWeightTile<kSet>>();
    unit_.template Store<kSumTile<kSet>>(to, Avx512::kLanes * sizeof(int32_t));
  }

  Unit unit_;
  Chunk* chunk_ = nullptr;
  size_t rows_ = 0;  // what the tiles are configured for; 0: nothing
  alignas(64) int32_t dots_[Chunk::kKBlocks][kSums][QuantizedActivations::kGroupRows][Avx512::kLanes];
};

template <class Unit>
struct Amx : Avx512 {
  // Of fewer rows, most of a tile would be empty.
  template <PanelFormat>
  static constexpr size_t kManyRows = 13;
  template <PanelFormat kFormat>
  using ChunkDots = TileDots<Unit, kFormat>;
};
