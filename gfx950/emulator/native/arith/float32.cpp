// f32 arithmetic.
#include "family.hpp"
#include "rounding.hpp"

namespace arith {
namespace {

constexpr auto kFma = [](float a, float b, float c) { return std::fma(a, b, c); };

// The face of a cube map that direction (x, y, z) points at: 0..5 for +x, -x, +y, -y, +z, -z.
int cube_face(float x, float y, float z) {
  const float ax = std::fabs(x), ay = std::fabs(y), az = std::fabs(z);
  if (az >= ax && az >= ay) return z < 0 ? 5 : 4;
  if (ay >= ax) return y < 0 ? 3 : 2;
  return x < 0 ? 1 : 0;
}
float cube_s(float x, float y, float z) {
  const float s[6] = {-z, z, x, x, x, -x};
  return s[cube_face(x, y, z)];
}
float cube_t(float x, float y, float z) {
  const float t[6] = {-y, -y, z, -z, -y, -y};
  return t[cube_face(x, y, z)];
}
float cube_major(float x, float y, float z) {
  const float axes[3] = {x, y, z};
  return 2 * axes[cube_face(x, y, z) / 2];
}

}  // namespace

OpList float32_ops() {
  using F1 = float(float);
  using F2 = float(float, float);
  using F3 = float(float, float, float);
  return {
      lane_op<F2, [](float a, float b) { return a + b; }>("v_add_f32"),
      lane_op<F2, [](float a, float b) { return a - b; }>("v_sub_f32"),
      lane_op<F2, [](float a, float b) { return b - a; }>("v_subrev_f32"),
      lane_op<F2, [](float a, float b) { return a * b; }>("v_mul_f32"),
      lane_op<F2, [](float a, float b) { return a == 0 || b == 0 ? 0.0f : a * b; }>("v_mul_legacy_f32"),
      lane_op<F3, kFma>("v_fma_f32"),
      lane_op<F3, kFma>("v_fmaak_f32"),
      lane_op<F3, kFma>("v_fmamk_f32"),
      lane_op<float(float, float, Old<float>), kFma>("v_fmac_f32"),

      lane_op<F2, min_num<float>>("v_min_f32"),
      lane_op<F2, max_num<float>>("v_max_f32"),
      lane_op<F3, min3_num<float>>("v_min3_f32"),
      lane_op<F3, max3_num<float>>("v_max3_f32"),
      lane_op<F3, med3_num<float>>("v_med3_f32"),
      lane_op<F3, minimum3<float>>("v_minimum3_f32"),
      lane_op<F3, maximum3<float>>("v_maximum3_f32"),

      lane_op<F1, fract<float>>("v_fract_f32"),
      lane_op<F1, [](float a) { return std::trunc(a); }>("v_trunc_f32"),
      lane_op<F1, [](float a) { return std::ceil(a); }>("v_ceil_f32"),
      lane_op<F1, [](float a) { return std::floor(a); }>("v_floor_f32"),
      lane_op<F1, [](float a) { return round_even(a); }>("v_rndne_f32"),
      lane_op<float(float, int32_t), ldexp_float>("v_ldexp_f32"),
      lane_op<F1, frexp_mantissa<float>>("v_frexp_mant_f32"),
      lane_op<int32_t(float), frexp_exponent<float>>("v_frexp_exp_i32_f32"),

      lane_op<F3, [](float x, float y, float z) { return static_cast<float>(cube_face(x, y, z)); }>("v_cubeid_f32"),
      lane_op<F3, cube_s>("v_cubesc_f32"),
      lane_op<F3, cube_t>("v_cubetc_f32"),
      lane_op<F3, cube_major>("v_cubema_f32"),
  };
}

}  // namespace arith
