/* The tables of devices and footprints. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ascend/plan/plan.h"
#include "backend.h"

static void devices_are_found_by_any_spelling(void **state) {
  (void)state;
  static const char *const spellings[][2] = {
      {"ascend910b4", "ascend910b4"}, {"Ascend910B4", "ascend910b4"}, {"910B4", "ascend910b4"},
      {"910b1", "ascend910b1"},       {"910_93", "ascend910_93"},     {"ASCEND950", "ascend950"},
  };
  for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
    const tigon_device_desc *device = tigon_device_desc_find(spellings[i][0]);
    assert_non_null(device);
    assert_string_equal(device->name, spellings[i][1]);
  }
  static const char *const unknown[] = {"", "ascend", "910", "910b5", "ascend910b", "cpu", "gpu-generic", " 910b4"};
  for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) assert_null(tigon_device_desc_find(unknown[i]));
  assert_null(tigon_device_desc_find(NULL));
  assert_null(tigon_device_desc_at(-1));
}

static void ascend_sizes(void **state) {
  (void)state;
  static const struct {
    const char *name;
    int64_t bytes, cores;
  } table[] = {{"910b1", 188160, 48}, {"910b2", 188160, 48},  {"910b3", 188160, 40},
               {"910b4", 188160, 40}, {"910_93", 188160, 40}, {"950", 245504, 64}};
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    const tigon_device_desc *device = tigon_device_desc_find(table[i].name);
    assert_int_equal(device->onchip_bytes, table[i].bytes);
    assert_int_equal(device->cores, table[i].cores);
    assert_int_equal(device->grid_limit, 65535);
    assert_int_equal(device->onchip_alignment, 32);
    assert_int_equal(device->memory_alignment, 512);
    assert_int_equal(device->transfer_bytes, 16384);
    assert_int_equal(device->buffers, 2);
  }
}

/* Every entry has what the planner needs, and its bandwidth points rise. */
static void every_device_is_complete(void **state) {
  (void)state;
  static const struct {
    const char *name;
    size_t offset, size;
  } sizes[] = {
#define SIZE(field) {#field, offsetof(tigon_device_desc, field), sizeof(((tigon_device_desc *)0)->field)}
      SIZE(onchip_bytes),     SIZE(cores),          SIZE(grid_limit),   SIZE(onchip_alignment),
      SIZE(memory_alignment), SIZE(transfer_bytes), SIZE(vector_bytes), SIZE(buffers),
      SIZE(bandwidth),        SIZE(cached_gbps),    SIZE(vector_gops),
#undef SIZE
  };
  tigon_footprint footprint;
  assert_true(tigon_footprint_find("rms_norm", "bwd", TIGON_F32, &footprint));
  int count = 0;
  for (const tigon_device_desc *device; (device = tigon_device_desc_at(count)); count++) {
    const tigon_plan_request request = {.footprint = &footprint, .device = device, .rows = 2048, .cols = 4096};
    tigon_plan plan;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
      static const char zeros[sizeof(tigon_device_desc)];
      if (memcmp((const char *)device + sizes[i].offset, zeros, sizes[i].size) == 0)
        fail_msg("%s of device %s is missing", sizes[i].name, device->name);
    }
    assert_int_equal(tigon_plan_make(&request, &plan), TIGON_OK);
    assert_ptr_equal(tigon_device_desc_find(device->name), device);
    for (int i = 1; i < TIGON_BANDWIDTH_POINTS && device->bandwidth[i].cores > 0; i++) {
      assert_true(device->bandwidth[i].cores > device->bandwidth[i - 1].cores && device->bandwidth[i].gbps > 0);
    }
  }
  assert_int_equal(count, 6);
}

/* Minimum traffic in streams per element (cross_entropy without dlogits reads 1, and so on), and the same for rows that
 * do not stay on chip. adamw counts bytes: its state is f32 in any case. */
static void footprints_move_the_minimum(void **state) {
  (void)state;
  static const struct {
    const char *op, *entry;
    int once, often; /* streams; bytes of f32 and bytes of bf16 for adamw step */
  } table[] = {
      {"rms_norm", "fwd", 2, 3},
      {"rms_norm", "fwd_gate", 3, 4},
      {"rms_norm", "bwd", 3, 5},
      {"rms_norm", "bwd_gate", 5, 8},
      {"fused_add_rms_norm", "fwd", 4, 5},
      {"fused_add_rms_norm", "bwd", 4, 6},
      {"modulated_rms_norm", "fwd", 2, 3},
      {"modulated_rms_norm", "bwd", 3, 5},
      {"layer_norm", "fwd", 2, 3},
      {"layer_norm", "bwd", 3, 5},
      {"swiglu", "fwd", 3, 3},
      {"swiglu", "bwd", 5, 5},
      {"geglu", "fwd", 3, 3},
      {"geglu", "bwd", 5, 5},
      {"relu_squared", "fwd", 2, 2},
      {"relu_squared", "bwd", 3, 3},
      {"scale", "fwd", 2, 2},
      {"rope", "fwd", 2, 2},
      {"rope", "bwd", 2, 2},
      {"embedding", "fwd", 2, 2},
      {"embedding", "bwd", 2, 2},
      {"softmax", "fwd", 2, 3},
      {"softmax", "fwd_mask", 3, 5},
      {"softmax", "bwd", 3, 5},
      {"sparsemax", "fwd", 2, 4},
      {"sparsemax", "bwd", 3, 5},
      {"cross_entropy", "fwd", 1, 1},
      {"cross_entropy", "fwd_dlogits", 2, 3},
      {"cross_entropy", "bwd", 2, 2},
      {"divergence", "fwd", 2, 6},
      {"divergence", "fwd_dinput", 3, 9},
      {"divergence", "bwd", 3, 3},
      {"topk_divergence", "fwd", 1, 2},
      {"topk_divergence", "fwd_dinput", 2, 4},
      {"topk_divergence", "bwd", 2, 2},
      {"vocab_parallel_cross_entropy", "stats", 1, 1},
      {"vocab_parallel_cross_entropy", "bwd", 2, 2},
      {"adamw", "clip", 1, 1},
  };
  static const tigon_dtype dtypes[] = {TIGON_F32, TIGON_F16, TIGON_BF16};
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    for (int d = 0; d < 3; d++) {
      tigon_footprint f;
      assert_true(tigon_footprint_find(table[i].op, table[i].entry, dtypes[d], &f));
      assert_string_equal(f.op, table[i].op);
      assert_string_equal(f.entry, table[i].entry);
      const int bytes = dtypes[d] == TIGON_F32 ? 4 : 2;
      int once = 0, often = 0;
      for (int s = 0; s < f.inputs + f.outputs; s++) {
        once += f.stream[s].element_bytes;
        often += f.stream[s].element_bytes * f.stream[s].passes;
      }
      assert_int_equal(once, table[i].once * bytes);
      assert_int_equal(often, table[i].often * bytes);
    }
  }
  tigon_footprint f;
  assert_true(tigon_footprint_find("adamw", "step", TIGON_F32, &f));
  assert_int_equal(f.inputs * 4 + f.outputs * 4, 28); /* param, grad, m, v in; param, m, v out */
  assert_true(tigon_footprint_find("adamw", "step", TIGON_BF16, &f));
  assert_int_equal(f.stream[0].element_bytes + f.stream[1].element_bytes, 4); /* param in and out */
  assert_true(!f.stream[0].out && f.stream[1].out);
  assert_true(tigon_footprint_find("adamw", "step_master", TIGON_BF16, &f));
  assert_int_equal(f.inputs, 4);  /* master, grad, m, v */
  assert_int_equal(f.outputs, 4); /* param, master, m, v */
  assert_true(tigon_footprint_find("rms_norm", "quantised", TIGON_BF16, &f));
  assert_int_equal(f.stream[0].element_bytes * 10 + f.stream[0].passes, 23); /* x: for the sum, the largest y, and q */
  assert_int_equal(f.stream[1].element_bytes * 10 + f.stream[1].passes, 11);
  assert_true(tigon_footprint_find("rms_norm", "quantised_gate", TIGON_BF16, &f));
  assert_int_equal(f.inputs, 2);
  assert_int_equal(f.stream[1].element_bytes * 10 + f.stream[1].passes, 22); /* z: not for the sum */
  assert_true(tigon_footprint_find("vocab_parallel_cross_entropy", "merge", TIGON_F32, &f));
  assert_int_equal(f.inputs, 1); /* five words of a shard */
  assert_int_equal(f.stream[0].element_bytes, 20);
  assert_int_equal(f.outputs, 0);
}

/* Every slot that Ascend fills, but attn_res, whose tiles are a token's blocks, and hyper-connections, fused_moe and
 * multi_token_attention, whose launchers cut them. Of those that are f32 alone merge has one, and preference_loss and policy_loss have no tiles. */
static void every_slot_has_a_footprint(void **state) {
  (void)state;
  const tigon_kernels *kernels = tigon_backend_find("ascend-sim")->variants()[0];
  tigon_footprint f;
  int planned =
      12; /* no slots: the gates of rms_norm, fwd_dlogits, two fwd_dinput, softmax's masks, rope with positions, adamw's
             master; and merge */
  for (int i = 0; tigon_entry_at(i); i++) {
    const tigon_entry *e = tigon_entry_at(i);
    const bool cut_by_launchers = strncmp(e->op, "mhc_", 4) == 0 || strcmp(e->op, "fused_moe") == 0 ||
                                  strcmp(e->op, "multi_token_attention") == 0;
    const bool planned_for = !e->composite && strcmp(e->op, "attn_res") != 0 && !cut_by_launchers;
    const bool filled = planned_for && tigon_entry_dtypes(kernels, i) & TIGON_BIT(TIGON_BF16);
    assert_int_equal(tigon_footprint_find(e->op, e->entry, TIGON_BF16, &f), filled);
    planned += filled;
  }
  int count = 0;
  const char *op, *entry;
  for (; tigon_footprint_at(count, &op, &entry); count++) {
    assert_true(tigon_footprint_find(op, entry, TIGON_F32, &f));
    int outputs = 0;
    assert_true(f.inputs + f.outputs > 0 && f.inputs + f.outputs <= TIGON_MAX_STREAMS);
    for (int i = 0; i < f.inputs + f.outputs; i++) {
      assert_true(f.stream[i].element_bytes > 0 && f.stream[i].passes > 0);
      outputs += f.stream[i].out;
    }
    assert_int_equal(outputs, f.outputs);
  }
  assert_int_equal(count, planned);
  assert_false(tigon_footprint_at(-1, &op, &entry));
}

static void unknown_footprints(void **state) {
  (void)state;
  tigon_footprint f = {.inputs = 77};
  assert_false(tigon_footprint_find("rms_norm", "step", TIGON_F32, &f));
  assert_false(tigon_footprint_find("rmsnorm", "fwd", TIGON_F32, &f));
  assert_false(tigon_footprint_find("rms_norm", "fwd", TIGON_I32, &f));
  assert_false(tigon_footprint_find("rms_norm", "fwd", TIGON_DTYPE_NONE, &f));
  assert_false(tigon_footprint_find("rms_norm", "fwd", (tigon_dtype)99, &f));
  assert_false(tigon_footprint_find("vocab_parallel_cross_entropy", "merge", TIGON_BF16, &f));
  assert_false(tigon_footprint_find(NULL, "fwd", TIGON_F32, &f));
  assert_false(tigon_footprint_find("rms_norm", NULL, TIGON_F32, &f));
  assert_int_equal(f.inputs, 77);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(devices_are_found_by_any_spelling), cmocka_unit_test(ascend_sizes),
      cmocka_unit_test(every_device_is_complete),          cmocka_unit_test(footprints_move_the_minimum),
      cmocka_unit_test(every_slot_has_a_footprint),        cmocka_unit_test(unknown_footprints),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
