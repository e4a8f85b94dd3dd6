/* geglu, as its header writes it, but for (1 + tanh u) / 2 and (1 + erf z) / 2, which cancel: they are sigma(2 u) and
 * erfc(-z) / 2. */
#include "ref/ref.h"

static const double root_2_over_pi = 0.79788456080286535588, root_half = 0.70710678118654752440;

static double sigma(double y) { return 1 / (1 + tigon_ref_exp(-y)); }
/* erfc without errno: 2 and 0 in double beyond these. */
static double quiet_erfc(double z) { return z > 26 ? 0 : z < -6 ? 2 : erfc(z); }

/* gelu, and *slope. */
static double gelu(tigon_gelu approx, double a, double *slope) {
  if (approx == TIGON_GELU_ERF) {
    const double phi = quiet_erfc(-a * root_half) / 2;
    *slope = phi + a * (tigon_ref_exp(-a * a / 2) * root_2_over_pi / 2);
    return a * phi;
  }
  const double y = 2 * root_2_over_pi * (a + 0.044715 * a * a * a);
  *slope = sigma(y) + a * (sigma(y) * sigma(-y) * 2 * root_2_over_pi * (1 + 3 * 0.044715 * a * a));
  return a * sigma(y);
}

/* c of a and b. */
static void fwd(const tigon_map_numbers *k, const double *in, double *c) {
  double slope;
  *c = gelu(k->approx, in[0], &slope) * in[1];
}

/* da and db of dc, a and b. */
static void bwd(const tigon_map_numbers *k, const double *in, double *out) {
  double slope;
  const double dc = in[0], value = gelu(k->approx, in[1], &slope);
  out[0] = dc * in[2] * slope;
  out[1] = dc * value;
}

TIGON_REF_MAP(geglu_fwd, fwd)
TIGON_REF_MAP(geglu_bwd, bwd)
