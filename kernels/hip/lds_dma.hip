// From memory into LDS without a stop in registers, 16 bytes a lane. Written as assembly, because for the builtins the compiler
// would wait for all loads in flight before the next transposing read of LDS; wait_loads() does the waiting. A load must not
// follow the write of m0 at once.
DEVICE u32 lds_offset(LDS char* at) { return (u32)(size_t)at; }
DEVICE void load_to_lds(i32x4 resource, u32 lane_offset, u32 offset, LDS char* to) {
  asm volatile("s_mov_b32 m0, %0\n\ts_nop 0\n\tbuffer_load_dwordx4 %1, %2, %3 offen lds"
               :: "s"(lds_offset(to)), "v"(lane_offset), "s"(resource), "s"(offset) : "memory", "m0");
}
DEVICE void load_to_lds(const u8* from, LDS char* to) {
  asm volatile("s_mov_b32 m0, %0\n\ts_nop 0\n\tglobal_load_lds_dwordx4 %1, off" :: "s"(lds_offset(to)), "v"(from) : "memory", "m0");
}

// Raw buffer of `bytes` bytes: loads beyond its end give zeros.
DEVICE i32x4 buffer_resource(const u8* base, u32 bytes) {
  const u64 address = (u64)base;
  return i32x4{(int)address, (int)(address >> 32) & 0xffff, (int)bytes, 0x27000};
}
