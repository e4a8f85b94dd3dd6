/* swiglu, as its header writes it. */
#include "ref/ref.h"

/* What the clamp lets through. A NaN is not greater than it and passes. */
static double clamp_gate(double a, double clamp) { return clamp > 0 && a > clamp ? clamp : a; }
static double clamp_up(double b, double clamp) {
  return clamp > 0 && b > clamp ? clamp : clamp > 0 && b < -clamp ? -clamp : b;
}

/* c of a and b. */
static void fwd(const tigon_map_numbers *k, const double *in, double *c) {
  const double clamp = (double)k->clamp, u = (double)k->gate_mult * clamp_gate(in[0], clamp);
  *c = (double)k->down_mult * (u / (1 + tigon_ref_exp(-u))) * (clamp_up(in[1], clamp) + (double)k->up_offset);
}

/* da and db of dc, a and b. */
static void bwd(const tigon_map_numbers *k, const double *in, double *out) {
  const double gate = (double)k->gate_mult, down = (double)k->down_mult, clamp = (double)k->clamp;
  const double dc = in[0], a = in[1], b = in[2];
  const double u = gate * clamp_gate(a, clamp), sigma = 1 / (1 + tigon_ref_exp(-u)),
               rest = 1 / (1 + tigon_ref_exp(u)); /* 1 - sigma */
  const double da = dc * down * (clamp_up(b, clamp) + (double)k->up_offset) * gate * sigma * (1 + u * rest);
  const double db = dc * down * (u / (1 + tigon_ref_exp(-u)));
  out[0] = clamp > 0 && a > clamp ? 0 : da;
  out[1] = clamp > 0 && fabs(b) > clamp ? 0 : db;
}

TIGON_REF_MAP(swiglu_fwd, fwd)
TIGON_REF_MAP(swiglu_bwd, bwd)
