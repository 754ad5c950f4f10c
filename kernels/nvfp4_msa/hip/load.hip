// A wave's part of a block from its page into LDS.

// 16 or 4 bytes a lane from base + lane_offset, the base being that of all lanes, to byte kTo of `block`. See lds_dma.hip.
template <u32 kTo>
DEVICE void load16_to_lds(const u8* base, u32 lane_offset, u32 block) {
  asm volatile("s_add_u32 m0, %0, %3\n\ts_nop 0\n\tglobal_load_lds_dwordx4 %1, %2"
               :: "s"(block), "v"(lane_offset), "s"(base), "n"(kTo) : "memory", "m0", "scc");
}
template <u32 kTo>
DEVICE void load4_to_lds(const u8* base, u32 lane_offset, u32 block) {
  asm volatile("s_add_u32 m0, %0, %3\n\ts_nop 0\n\tglobal_load_lds_dword %1, %2"
               :: "s"(block), "v"(lane_offset), "s"(base), "n"(kTo) : "memory", "m0", "scc");
}

struct Loader {
  static constexpr int kLoads = 6;  // of one block
  const u8* cache;
  u64 page_bytes;
  u32 k[2], v[2], k_scales, v_scales;  // bytes from the page to what this lane loads

  MEMBER Loader(const u8* cache, int kv_heads, int kv_head, const Lane& at) : cache(cache), page_bytes((u64)kv_heads * kHeadBytes) {
    const u32 tokens = kv_head * kDataBytes + at.wave * sizeof(WaveBlock::k);
    const u32 scales = kv_heads * kDataBytes + kv_head * kScaleBytes + at.wave * sizeof(WaveBlock::k_scales) + at.lane * 4;
    const u32 value_part = kv_heads * (kDataBytes + kScaleBytes);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      k[half] = tokens + WaveBlock::place(16 * half + at.lane / 4, at.lane % 4);
      v[half] = k[half] + value_part;
    }
    k_scales = scales;
    v_scales = scales + value_part;
  }

  MEMBER void load(u32 page, WaveBlock LDS* to) const {
    const u8* base = cache + page * page_bytes;
    const u32 block = lds_offset((LDS char*)to);
    load16_to_lds<__builtin_offsetof(WaveBlock, k)>(base, k[0], block);
    load16_to_lds<__builtin_offsetof(WaveBlock, k) + 1024>(base, k[1], block);
    load4_to_lds<__builtin_offsetof(WaveBlock, k_scales)>(base, k_scales, block);
    load16_to_lds<__builtin_offsetof(WaveBlock, v)>(base, v[0], block);
    load16_to_lds<__builtin_offsetof(WaveBlock, v) + 1024>(base, v[1], block);
    load4_to_lds<__builtin_offsetof(WaveBlock, v_scales)>(base, v_scales, block);
  }
};
