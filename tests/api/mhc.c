/* Hyper-connections: what their headers ask of shapes and no description can say. Each call is a legal one with a change. */
#include "api.h"
#include "views.h"

enum { ARENA = 1 << 16, ROOM = 1 << 14 };

static _Alignas(64) char memory[ARENA + ROOM], before[ARENA + ROOM];

/* The call of `entry` in which '*' is [B, T] = [2, 3], with 2 streams of 75 channels in and 3 out, or 8 coefficients. */
static void *legal(call *c, const char *entry) {
  const call_choices how = usual(TIGON_F32, 2);
  int i = 0;
  while (strcmp(tigon_schema_at(i)->name, entry) != 0) ++i;
  assert_true(call_make(c, i, tigon_schema_at(i), &how, memory, ARENA) > 0);
  for (view v = view_at(c, 0); v.x; v = view_at(c, v.k + 1)) memset(v.x->strides, 0, sizeof v.x->strides);
  call_set_workspace(c, memory + ARENA, ROOM);
  return c->args;
}

#define RULE(entry, change, sentence)                                                                  \
  do {                                                                                                 \
    call c;                                                                                            \
    tigon_##entry##_args *a = legal(&c, #entry);                                                       \
    (void)(change);                                                                                    \
    memcpy(before, memory, sizeof memory);                                                             \
    api_expect(*state, call_run(&c, *state), TIGON_ERROR_INVALID, "%s: %s", c.schema->name, sentence); \
    assert_memory_equal(memory, before, sizeof memory);                                                \
  } while (0)

static int absent(tigon_tensor *t) {
  *t = (tigon_tensor){0};
  return 0;
}

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
