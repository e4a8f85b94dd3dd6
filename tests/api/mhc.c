/* Hyper-connections: what their headers ask of shapes and no description can say. Each call is a legal one with a change. */
#include "rules.h"

static void test_coeffs(void **state) {
  RULE(mhc_coeffs_fwd, a->phi.ndim = 1, "phi.ndim is 1, must be 2");
  RULE(mhc_coeffs_fwd, a->phi.shape[0] = 149, "phi.shape[0] is 149, must be 150 (channels of all streams of x)");
  RULE(mhc_coeffs_fwd, a->phi.shape[1] = 7, "phi.shape[1] is 7, must be 8 (coefficients of the streams of x)");
  RULE(mhc_coeffs_bwd, a->dphi.shape[0] = 149, "dphi.shape[0] is 149, must be 150 (channels of all streams of x)");
  RULE(mhc_coeffs_bwd, a->b.shape[0] = a->db.shape[0] = a->mix.shape[2] = 7,
       "b.shape[0] is 7, must be 8 (coefficients of the streams of x)");
  RULE(mhc_coeffs_fwd, a->x.shape[3] = a->y.shape[2] = 0, "x.shape[3] is 0, must be 1 or more");
}

static void test_post_res(void **state) {
  RULE(mhc_post_res_fwd,
       (a->x.shape[0] = a->f.shape[0] = a->h_res.shape[0] = a->h_post.shape[0] = a->o.shape[0] = 0,
        a->x.shape[2] = a->h_res.shape[3] = 17),
       "x.shape[2] is 17, must be 1 to 16");
  RULE(mhc_post_res_fwd, a->o.shape[2] = a->h_res.shape[2] = a->h_post.shape[2] = 0,
       "o.shape[2] is 0, must be 1 to 16");
  RULE(mhc_post_res_bwd,
       a->g.shape[2] = a->h_res.shape[2] = a->h_post.shape[2] = a->dh_res.shape[2] = a->dh_post.shape[2] = 0,
       "g.shape[2] is 0, must be 1 to 16");
  RULE(mhc_post_res_fwd, absent(&a->h_post), "h_post is absent, must be present as f is");
  RULE(mhc_post_res_bwd, absent(&a->f) + absent(&a->df) + absent(&a->dh_post),
       "f is absent, must be present as h_post is");
  RULE(mhc_post_res_bwd, absent(&a->f) + absent(&a->h_post), "df is present, must be absent as f is");
  RULE(mhc_post_res_bwd, absent(&a->f) + absent(&a->h_post) + absent(&a->df),
       "dh_post is present, must be absent as f is");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_coeffs), cmocka_unit_test(test_post_res)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
