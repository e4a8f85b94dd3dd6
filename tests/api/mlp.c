/* mlp: what its header asks of shapes and numbers and no description can say, and bytes of workspace. Each refused call is a legal
 * one with a change. */
#include "core/context.h"
#include "rules.h"

static void test_rules(void **state) {
  RULE(mlp_fwd, a->gate.shape[0] = a->up.shape[0] = a->gate_bias.shape[0] = a->up_bias.shape[0] = 74,
       "gate.shape[0] is 74, must be 75 (down.shape[1])");
  RULE(mlp_fwd, absent(&a->up), "gate.shape[0] is 75, must be 150 (without up, 2 * down.shape[1])");
  RULE(mlp_bwd, absent(&a->up), "gate.shape[0] is 75, must be 150 (without up, 2 * down.shape[1])");
  RULE(mlp_fwd, (a->act = TIGON_MLP_GELU_TANH, a->clamp = 2), "clamp is 2, must be 0 with act 1");
  RULE(mlp_bwd, (a->act = TIGON_MLP_GELU_ERF, a->down_mult = 0.5), "down_mult is 0.5, must be 0 with act 2");
}

/* A call with a packed weight may have no tensor of up's. */
static void test_packed(void **state) {
  call c;
  call_choices how = usual(TIGON_F32, 2);
  const int i = call_entry("mlp_bwd");
  for (int f = 0; f < tigon_schema_at(i)->count; ++f)
    how.absent |= (uint64_t)has_word("up up_bias dup dup_bias", tigon_schema_at(i)->fields[f].name) << f;
  assert_true(call_make(&c, i, tigon_schema_at(i), &how, memory, ARENA) > 0);
  call_set_workspace(&c, memory + ARENA, ROOM);
  if (call_run(&c, *state) != TIGON_OK) fail_msg("%s", tigon_last_error(*state));
  tigon_mlp_bwd_args *a = (tigon_mlp_bwd_args *)(void *)c.args;
  a->dup = a->dgate;
  a->dgate = (tigon_tensor){0};
  api_expect(*state, call_run(&c, *state), TIGON_ERROR_INVALID, "mlp_bwd: dup is there, must be absent without up");
}

/* A gradient that is not wanted may have any strides: the sanitizers see no product with them. */
static void test_absent_strides(void **state) {
  tigon_mlp_bwd_args a = {.x = tigon_tensor_2d(memory, TIGON_F32, 2, 0),
                          .gate = tigon_tensor_2d(memory, TIGON_F32, 2 * 75, 0),
                          .down = tigon_tensor_2d(memory, TIGON_F32, 0, 75),
                          .dy = tigon_tensor_2d(memory, TIGON_F32, 2, 0),
                          .workspace = memory + ARENA,
                          .workspace_bytes = ROOM};
  a.dgate.strides[0] = INT64_MIN;
  if (tigon_mlp_bwd(*state, &a) != TIGON_OK) fail_msg("%s", tigon_last_error(*state));
}

/* Llama-3 8B with 65536 tokens in bf16: the workspace has a tile, and with gradients in bf16 their sums. */
static void test_workspace(void **state) {
  const tigon_dtype dtype = TIGON_BF16;
  const int64_t rows = 65536, h = 4096, inner = 14336;
  tigon_mlp_bwd_args a = {.x = tigon_tensor_2d(NULL, dtype, rows, h),
                          .gate = tigon_tensor_2d(NULL, dtype, inner, h),
                          .up = tigon_tensor_2d(NULL, dtype, inner, h),
                          .down = tigon_tensor_2d(NULL, dtype, h, inner),
                          .dy = tigon_tensor_2d(NULL, dtype, rows, h),
                          .dx = tigon_tensor_2d(NULL, dtype, rows, h),
                          .dgate = tigon_tensor_2d(NULL, TIGON_F32, inner, h),
                          .dup = tigon_tensor_2d(NULL, TIGON_F32, inner, h),
                          .ddown = tigon_tensor_2d(NULL, TIGON_F32, h, inner)};
  size_t least, good, more;
  assert_int_equal(tigon_mlp_bwd_workspace(*state, &a, &least, &good), TIGON_OK);
  assert_int_equal(least, 3 * inner * 2 + 128);
  assert_int_equal(good, 1024 * 3 * inner * 2 + 128); /* the context is a host's */
  tigon_context *context = *state;
  const tigon_backend *host = context->queue.backend;
  tigon_backend device = *host;
  device.host_memory = false;
  context->queue.backend = &device;
  assert_int_equal(tigon_mlp_bwd_workspace(context, &a, NULL, &more), TIGON_OK);
  assert_int_equal(more, 4096 * 3 * inner * 2 + 128);
  context->queue.backend = host;
  a.dgate.dtype = a.dup.dtype = a.ddown.dtype = dtype;
  assert_int_equal(tigon_mlp_bwd_workspace(*state, &a, &least, &more), TIGON_OK);
  assert_true(least < 1 << 18);
  assert_int_equal(more, good + (size_t)(3 * inner * h) * sizeof(float));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_rules), cmocka_unit_test(test_packed),
                                     cmocka_unit_test(test_absent_strides), cmocka_unit_test(test_workspace)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
