#include "cpu/gate.h"
#include "cpu/map.h"

/* ---- factors of 1, no clamp and no offset, the usual call ---- */

TIGON_INLINE vf silu(const map_in *in, vf u) { return in->dtype == TIGON_F32 ? vf_silu(u) : silu_16(u, in->early); }
TIGON_INLINE vf silu_slope(const map_in *in, vf u, vf *value) {
  return in->dtype == TIGON_F32 ? vf_silu_slope(u, value) : silu_slope_16(u, in->early, value);
}

TIGON_INLINE vf2 exp_plain(const tigon_map_numbers *k, tigon_dtype dtype, const void *a, int64_t i, int n) {
  (void)k;
  const vf2 u = v2_load(a, i, dtype, n);
  return (vf2){silu_exp_16(u.a), silu_exp_16(u.b)};
}
/* bf16 is sure of 8 bits of a plain factor; slopes cancel and are not. */
TIGON_INLINE vf2 exp_coarse(const tigon_map_numbers *k, tigon_dtype dtype, const void *a, int64_t i, int n) {
  if (dtype != TIGON_BF16) return exp_plain(k, dtype, a, i, n);
  const vf2 u = vf_load2_bf16_within((const uint16_t *)a + i, n, -110.0f, 20.75f);
  return (vf2){silu_exp_bf16(u.a), silu_exp_bf16(u.b)};
}

/* c of a and b. */
TIGON_INLINE map_out fwd_plain(map_in in) { return (map_out){.a = vf_mul(silu(&in, in.a), in.b)}; }

/* da and db of dc, a and b. */
TIGON_INLINE map_out bwd_plain(map_in in) {
  vf value;
  const vf slope = silu_slope(&in, in.b, &value);
  return (map_out){vf_mul(vf_mul(in.a, in.c), slope), vf_mul(in.a, value)};
}

/* ---- with factors, a clamp and an offset ---- */

TIGON_INLINE vf2 exp_scaled(const tigon_map_numbers *k, tigon_dtype dtype, const void *a, int64_t i, int n) {
  const vf2 x = v2_load(a, i, dtype, n);
  return (vf2){silu_exp_16(gate_argument(k, x.a)), silu_exp_16(gate_argument(k, x.b))};
}

TIGON_INLINE map_out fwd_scaled(map_in in) {
  const tigon_map_numbers *k = in.numbers;
  return (map_out){.a = vf_mul(vf_mul(silu(&in, gate_argument(k, in.a)), vf_set(k->down_mult)), gate_up(k, in.b))};
}

TIGON_INLINE map_out bwd_scaled(map_in in) {
  const tigon_map_numbers *k = in.numbers;
  const vf d = vf_mul(in.a, vf_set(k->down_mult));
  vf value;
  const vf slope = silu_slope(&in, gate_argument(k, in.b), &value);
  const map_out out = {vf_mul(vf_mul(vf_mul(d, gate_up(k, in.c)), slope), vf_set(k->gate_mult)), vf_mul(d, value)};
  if (!(k->clamp > 0)) return out;
  const vf limit = vf_set(k->clamp);
  return (map_out){vf_select(vf_lt(limit, in.b), vf_zero(), out.a),
                   vf_select(vf_lt(limit, vf_abs(in.c)), vf_zero(), out.b)};
}

static bool is_plain(const tigon_map_numbers *k) {
  return k->gate_mult == 1 && k->down_mult == 1 && k->clamp == 0 && k->up_offset == 0;
}

MAP_EITHER(swiglu_fwd, is_plain(&p->numbers), MAP_OF(2, 1, fwd_plain, exp_coarse, 0),
           MAP_OF(2, 1, fwd_scaled, exp_scaled, 0))
MAP_EITHER(swiglu_bwd, is_plain(&p->numbers), MAP_OF(3, 2, bwd_plain, exp_plain, 1),
           MAP_OF(3, 2, bwd_scaled, exp_scaled, 1))
