// Loads of this wave for one tile after the other. Rows beyond the end of the split become zeros (contiguous) or repeat the
// split's last row (paged), so that LDS never holds anything that a masked token could turn into NaN.
template <Traits T>
struct Loader {
  using Geometry = Tile<T>;
  Lane at;
  const u8* base;                      // of the cache
  i32x4 resource;                      // contiguous: the rows of the split
  u32 source[Geometry::kWaveLoads];    // byte within the tile's rows, by load of this wave
  // paged
  const int* table;                    // block table of this sequence
  int first_token, last_token, page_bits;
  int page[T.paged ? Geometry::kWaveLoads : 1];

  MEMBER Loader(const Lane& at, const u8* kv, const int* block_table, const Work& work, int first, int end, int page_bits)
      : at(at), base(kv), table(block_table), first_token(first), last_token(end - 1), page_bits(page_bits) {
    resource = buffer_resource(base + (u64)(work.kv_begin + first) * Geometry::kRowBytes, (u32)(end - first) * Geometry::kRowBytes);
#pragma unroll
    for (int i = 0; i < Geometry::kWaveLoads; ++i) {
      const u32 row = row_of(i), chunk = slot(i) - row * Geometry::kChunks;
      source[i] = Geometry::place(row, chunk) - (T.paged ? row * Geometry::kRowBytes : 0);
    }
    if (T.paged) find_pages(0);
  }

  MEMBER u32 slot(int i) const { return (i * kWaves + at.wave) * 64 + at.lane; }
  MEMBER u32 row_of(int i) const { return slot(i) / Geometry::kChunks; }
  MEMBER int token_of(int tile, int i) const { return min(first_token + tile * T.tile + (int)row_of(i), last_token); }

  // Table entries for the next `load`; a tile that does not exist has those of the last token.
  MEMBER void find_pages(int tile) {
#pragma unroll
    for (int i = 0; i < Geometry::kWaveLoads; ++i) page[i] = table[token_of(tile, i) >> page_bits];
  }

  MEMBER void load(int tile, LDS char* destination) {
#pragma unroll
    for (int i = 0; i < Geometry::kWaveLoads; ++i) {
      if (i >= Geometry::kLeastWaveLoads && i * kWaves + at.wave >= Geometry::kLoads) break;
      LDS char* to = destination + (i * kWaves + at.wave) * 1024;
      if (T.paged) {
        const int within = token_of(tile, i) & ((1 << page_bits) - 1);
        const u32 row = ((u32)page[i] << page_bits) + within;
        load_to_lds(base + (u64)row * Geometry::kRowBytes + source[i], to);
      } else {
        load_to_lds(resource, source[i], tile * Geometry::kBytes, to);
      }
    }
    if (T.paged) find_pages(tile + 1);
  }
};
