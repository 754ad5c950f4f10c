// Which row and which of its blocks a workgroup works on.

// The query row of grid position `x`. Workgroup w runs on XCD w % num_xcds, and the grid is a multiple of num_xcds wide: all rows
// of a request, and all splits of a row, meet in the L2 cache of one XCD. With num_xcds 1, row x.
struct Row {
  u32 request, token;  // of the request's q_len
  u32 index;           // among all rows

  MEMBER Row(u32 x, u32 num_xcds, u32 q_len) {
    const u32 turn = x / num_xcds, xcd = x - turn * num_xcds, round = turn / q_len;
    request = round * num_xcds + xcd;
    token = turn - round * q_len;
    index = request * q_len + token;
  }

  // The last position that the row sees; negative for padding.
  MEMBER int position(u32 requests, u32 q_len, const int* seq_lens) const {
    return request < requests ? seq_lens[request] - (int)q_len + (int)token : -1;
  }
};

// The valid slots of a row, in order: lane i holds the page of number i.
struct Slots {
  int count;
  int page;
  u64 own;  // bit i: number i is the block of the row's own position

  // block: what slot `lane` lists, of num_slots.
  MEMBER Slots(int block, int num_slots, const int* table, int position, int lane) {
    const int own_block = position / kBlockTokens;
    const bool valid = lane < num_slots && (u32)block <= (u32)own_block;
    const u64 mask = __builtin_amdgcn_ballot_w64(valid);
    count = __builtin_popcountll(mask);
    const int found = table[valid ? block : 0];
    // Every lane hands its page to the place that it takes among the valid slots, or behind them.
    const int before = lanes_before(mask), place = valid ? before : count + lane - before;
    page = __builtin_amdgcn_ds_permute(4 * place, found);
    own = __builtin_amdgcn_ballot_w64(__builtin_amdgcn_ds_permute(4 * place, valid && block == own_block));
  }

  MEMBER static int lanes_before(u64 mask) { return __builtin_amdgcn_mbcnt_hi(mask >> 32, __builtin_amdgcn_mbcnt_lo((u32)mask, 0)); }
  MEMBER u32 page_of(int number) const { return __builtin_amdgcn_readlane(page, number); }
};

// The share of a split, in whole slots.
struct Share {
  int first, count;   // of the valid slots
  int active_splits;  // splits that hold a slot

  MEMBER Share(int slots, int split, int num_kv_splits) {
    const u8 per_split = divided_up(slots, num_kv_splits);
    first = split * per_split;
    count = min((int)per_split, slots - first);
    active_splits = slots ? divided_up(slots, per_split) : 0;
  }
  // Of numbers up to 64: as bytes, since the compiler divides those faster.
  MEMBER static u8 divided_up(u8 a, u8 b) { return u8(a + b - 1) / b; }
};
