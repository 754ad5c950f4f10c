// Query heads as operand B of the first product.

// bf16 numbers of one head, dims 32 * group + 0..31.
struct RawQuery {
  i32x4 part[4];

  MEMBER RawQuery(const __bf16* head, int group) {
#pragma unroll
    for (int j = 0; j < 4; ++j) part[j] = *(const i32x4*)(head + 32 * group + 8 * j);
  }

  // The largest exponent of the head's numbers, as bf16 stores it.
  MEMBER int exponent() const {
    u32 largest = 0;
#pragma unroll
    for (int word = 0; word < 16; ++word) {
      const u16x2 magnitude = __builtin_bit_cast(u16x2, part[word / 4][word % 4] & 0x7fff7fff);
      largest = __builtin_bit_cast(u32, __builtin_elementwise_max(__builtin_bit_cast(u16x2, largest), magnitude));
    }
    const u32 lane_largest = max(largest & 0xffff, largest >> 16);  // as a float's bits: no NaN among them
    return __builtin_bit_cast(u32, largest_of_groups(__builtin_bit_cast(float, lane_largest))) >> 7;
  }
};

// The same in f16, as head = step * scale. The scale, a power of two, takes the largest number into [2^14, 2^15), so that only
// what is 2^40 times smaller is lost. Step j of the product takes dims 8 * j + 0..7 of each group's 32.
struct Query {
  f16x8 step[4];
  float scale;

  MEMBER explicit Query(const RawQuery& raw) {
    const int inverse_exponent = min(127 + 14 + 127 - raw.exponent(), 253);
    scale = __builtin_bit_cast(float, (254 - inverse_exponent) << 23);
    const float inverse = __builtin_bit_cast(float, inverse_exponent << 23);
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        const u32 word = raw.part[j][pair];
        const f32x2 two = {__builtin_bit_cast(float, word << 16), __builtin_bit_cast(float, word & 0xffff0000)};
        const f16x2 narrow = __builtin_convertvector(two * inverse, f16x2);
        step[j][2 * pair] = narrow[0];
        step[j][2 * pair + 1] = narrow[1];
      }
  }
};
