/* Every rule of the simulator: a kernel that breaks it, and the report that says so. Each kernel is right but for the line that
 * is marked, whose number the report must name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ascend/aicore.h"

enum { N = 256 }; /* elements */

typedef struct arguments {
  gm_ptr x, y;
} arguments;

static int marked; /* the line that breaks the rule */
#define BREAKS(call) (marked = __LINE__, call)

/* The right kernel: y = x + x, block by block. */
AICORE_KERNEL(right, arguments) {
  const ub_f32 x = ub_alloc_f32(ub, N), y = ub_alloc_f32(ub, N);
  const int64_t offset = block_index() * N * 4;
  load_f32(x, a->x + offset, 1, N);
  sync_set(PIPE_MTE2, PIPE_V, 0);
  sync_wait(PIPE_MTE2, PIPE_V, 0);
  v_add_f32(y, x, x, N);
  sync_set(PIPE_V, PIPE_MTE3, 0);
  sync_wait(PIPE_V, PIPE_MTE3, 0);
  store_f32(a->y + offset, y, 1, N);
}

AICORE_KERNEL(ub_overflow, arguments) {
  const ub_f32 x = ub_alloc_f32(ub, N);
  (void)a;
  BREAKS(v_duplicate_f32(x, 1, 1 << 20));
}

AICORE_KERNEL(alloc_overflow, arguments) {
  (void)a;
  BREAKS((void)ub_alloc_f32(ub, 1 << 20));
}

AICORE_KERNEL(misaligned_ub, arguments) {
  const ub_f32 x = ub_alloc_f32(ub, N);
  (void)a;
  BREAKS(v_duplicate_f32(ub_at_f32(x, 1), 1, 8));
}

AICORE_KERNEL(misaligned_memory, arguments) {
  const ub_f32 x = ub_alloc_f32(ub, N);
  BREAKS(load_f32(x, a->x + 2, 1, 8));
}

AICORE_KERNEL(uninitialised, arguments) {
  const ub_f32 x = ub_alloc_f32(ub, N), y = ub_alloc_f32(ub, N);
  (void)a;
  v_duplicate_f32(x, 1, 41);
  sync_pipe(PIPE_V);
  BREAKS(v_exp_f32(y, x, 42));
}

AICORE_KERNEL(outside_buffer, arguments) {
  const ub_f32 x = ub_alloc_f32(ub, N);
  BREAKS(load_f32(x, a->x + 4, 1, 2 * N));
}

AICORE_KERNEL(store_to_input, arguments) {
  const ub_f32 x = ub_alloc_f32(ub, N);
  v_duplicate_f32(x, 1, N);
  sync_set(PIPE_V, PIPE_MTE3, 0);
  sync_wait(PIPE_V, PIPE_MTE3, 0);
  BREAKS(store_f32(a->x, x, 1, N));
}

AICORE_KERNEL(read_after_write, arguments) {
  const ub_f32 x = ub_alloc_f32(ub, N), y = ub_alloc_f32(ub, N);
  load_f32(x, a->x, 1, N);
  BREAKS(v_add_f32(y, x, x, N));
}

AICORE_KERNEL(read_after_write_on_one_pipe, arguments) {
  const ub_f32 x = ub_alloc_f32(ub, N), y = ub_alloc_f32(ub, N);
  (void)a;
  v_duplicate_f32(x, 1, N);
  BREAKS(v_exp_f32(y, x, N));
}

AICORE_KERNEL(read_after_write_in_memory, arguments) {
  const ub_f32 x = ub_alloc_f32(ub, N), y = ub_alloc_f32(ub, N);
  v_duplicate_f32(x, 1, N);
  sync_set(PIPE_V, PIPE_MTE3, 0);
  sync_wait(PIPE_V, PIPE_MTE3, 0);
  store_f32(a->y, x, 1, N);
  BREAKS(load_f32(y, a->y, 1, N));
}

AICORE_KERNEL(write_after_read, arguments) {
  const ub_f32 x = ub_alloc_f32(ub, N), y = ub_alloc_f32(ub, N);
  load_f32(x, a->x, 1, N);
  sync_set(PIPE_MTE2, PIPE_V, 0);
  sync_wait(PIPE_MTE2, PIPE_V, 0);
  v_add_f32(y, x, x, N);
  BREAKS(load_f32(x, a->x, 1, N));
}

AICORE_KERNEL(write_after_write, arguments) {
  const ub_f32 x = ub_alloc_f32(ub, N);
  load_f32(x, a->x, 1, N);
  BREAKS(v_duplicate_f32(x, 1, N));
}

/* A flag of another id does not order them. */
AICORE_KERNEL(crossed_flags, arguments) {
  const ub_f32 x = ub_alloc_f32(ub, N), y = ub_alloc_f32(ub, N), z = ub_alloc_f32(ub, N);
  load_f32(x, a->x, 1, N);
  sync_set(PIPE_MTE2, PIPE_V, 0);
  load_f32(y, a->x, 1, N);
  sync_set(PIPE_MTE2, PIPE_V, 1);
  sync_wait(PIPE_MTE2, PIPE_V, 0);
  BREAKS(v_exp_f32(z, y, N));
}

AICORE_KERNEL(deadlock, arguments) {
  const ub_f32 x = ub_alloc_f32(ub, N);
  load_f32(x, a->x, 1, N);
  sync_set(PIPE_MTE2, PIPE_V, 0);
  BREAKS(sync_wait(PIPE_MTE2, PIPE_V, 1));
}

/* Each pipe waits for what the other does after its own wait. */
AICORE_KERNEL(deadlock_in_a_circle, arguments) {
  (void)a;
  sync_wait(PIPE_V, PIPE_MTE3, 0);
  sync_set(PIPE_MTE3, PIPE_V, 0);
  BREAKS(sync_wait(PIPE_MTE3, PIPE_V, 0));
  sync_set(PIPE_V, PIPE_MTE3, 0);
}

AICORE_KERNEL(flag_out_of_range, arguments) {
  (void)a;
  BREAKS(sync_set(PIPE_V, PIPE_MTE3, 8));
}

AICORE_KERNEL(flag_set_twice, arguments) {
  (void)a;
  sync_set(PIPE_V, PIPE_MTE3, 0);
  BREAKS(sync_set(PIPE_V, PIPE_MTE3, 0));
}

/* MTE2 has been told to wait, and V cannot know that it did. */
AICORE_KERNEL(flag_set_early, arguments) {
  const ub_f32 x = ub_alloc_f32(ub, N);
  sync_set(PIPE_V, PIPE_MTE2, 2);
  sync_wait(PIPE_V, PIPE_MTE2, 2);
  BREAKS(sync_set(PIPE_V, PIPE_MTE2, 2));
  sync_wait(PIPE_V, PIPE_MTE2, 2);
  load_f32(x, a->x, 1, N);
}
/* The same with an answer in between. */
AICORE_KERNEL(flag_set_in_time, arguments) {
  const ub_f32 x = ub_alloc_f32(ub, N);
  for (int i = 0; i < 3; ++i) {
    sync_set(PIPE_V, PIPE_MTE2, 2);
    sync_wait(PIPE_V, PIPE_MTE2, 2);
    load_f32(x, a->x, 1, N);
    sync_set(PIPE_MTE2, PIPE_V, 2);
    sync_wait(PIPE_MTE2, PIPE_V, 2);
  }
}
/* By way of the third pipe, and of the scalar pipe, which stands still in its waits. */
AICORE_KERNEL(flag_set_in_time_by_others, arguments) {
  (void)a, (void)ub;
  for (int i = 0; i < 3; ++i) {
    sync_set(PIPE_V, PIPE_MTE2, 0);
    sync_wait(PIPE_V, PIPE_MTE2, 0);
    sync_set(PIPE_MTE2, PIPE_MTE3, 1);
    sync_wait(PIPE_MTE2, PIPE_MTE3, 1);
    sync_set(PIPE_MTE3, PIPE_S, 2);
    sync_wait(PIPE_MTE3, PIPE_S, 2);
    sync_set(PIPE_S, PIPE_V, 3);
    sync_wait(PIPE_S, PIPE_V, 3);
  }
}

AICORE_KERNEL(scalar_barrier, arguments) {
  (void)a, (void)ub;
  BREAKS(sync_pipe(PIPE_S));
}

/* A selection takes 16 bytes of bits, of which a comparison writes 8. */
AICORE_KERNEL(half_a_selection, arguments) {
  const ub_f32 x = ub_alloc_f32(ub, N), mask = ub_alloc_f32(ub, 8);
  (void)a;
  v_duplicate_f32(x, 1, N);
  sync_pipe(PIPE_V);
  v_lt_scalar_f32(mask, x, 2);
  sync_pipe(PIPE_V);
  BREAKS(v_select_f32(x, mask, x, x));
}

AICORE_KERNEL(flag_left_set, arguments) {
  (void)a;
  BREAKS(sync_set(PIPE_V, PIPE_MTE3, 0));
}

static const v_steps plain = {.repeat = 1, 1, 1, 1, 8, 8, 8};

AICORE_KERNEL(repeat_overflow, arguments) {
  const ub_f32 x = ub_alloc_f32(ub, N);
  v_steps steps = plain;
  (void)a;
  steps.repeat = 256;
  v_mask_f32(64);
  BREAKS(v_add_r_f32(x, x, x, steps));
}

AICORE_KERNEL(too_many_rows, arguments) {
  const ub_f32 x = ub_alloc_f32(ub, N);
  BREAKS(load_f32(x, a->x, 4096, 1));
}

/* Offsets count bytes. */
AICORE_KERNEL(misaligned_gather, arguments) {
  const ub_f32 x = ub_alloc_f32(ub, N), offsets = ub_alloc_f32(ub, 8), y = ub_alloc_f32(ub, 8);
  (void)a;
  v_duplicate_f32(x, 1, N);
  for (int i = 0; i < 8; ++i) s_write_i32(offsets, i, i);
  sync_pipe(PIPE_ALL);
  BREAKS(v_gather_f32(y, x, offsets, 8));
}

AICORE_KERNEL(gather_overlap, arguments) {
  const ub_f32 x = ub_alloc_f32(ub, 8), offsets = ub_alloc_f32(ub, 8), y = ub_alloc_f32(ub, 8);
  (void)a;
  v_duplicate_f32(x, 1, 8);
  for (int i = 0; i < 8; ++i) s_write_i32(offsets, i, i < 7 ? 4 * i : 64);
  sync_pipe(PIPE_ALL);
  BREAKS(v_gather_f32(y, x, offsets, 8));
}

/* What offsets reach must be there, to the byte. */
AICORE_KERNEL(uninitialised_gather, arguments) {
  const ub_f32 x = ub_alloc_f32(ub, 16), offsets = ub_alloc_f32(ub, 8), y = ub_alloc_f32(ub, 8);
  (void)a;
  v_duplicate_f32(x, 1, 8);
  for (int i = 0; i < 8; ++i) s_write_i32(offsets, i, i < 7 ? 4 * i : 32);
  sync_pipe(PIPE_ALL);
  BREAKS(v_gather_f32(y, x, offsets, 8));
}

AICORE_KERNEL(overlap, arguments) {
  const ub_f32 x = ub_alloc_f32(ub, N);
  (void)a;
  v_duplicate_f32(x, 1, N);
  sync_pipe(PIPE_V);
  BREAKS(v_exp_f32(ub_at_f32(x, 8), x, 64));
}

AICORE_KERNEL(overlap_of_steps, arguments) {
  const ub_f32 x = ub_alloc_f32(ub, N);
  v_steps steps = plain;
  (void)a;
  v_duplicate_f32(x, 1, N);
  sync_pipe(PIPE_V);
  steps.repeat = 2;
  v_mask_f32(64);
  BREAKS(v_add_r_f32(ub_at_f32(x, 64), x, x, steps));
}

AICORE_KERNEL(stale_mask, arguments) {
  const ub_f32 x = ub_alloc_f32(ub, N);
  (void)a;
  v_mask_f32(64);
  v_duplicate_f32(x, 1, N);
  sync_pipe(PIPE_V);
  BREAKS(v_add_r_f32(x, x, x, plain));
}

AICORE_KERNEL(no_mask, arguments) {
  const ub_f32 x = ub_alloc_f32(ub, N), sum = ub_alloc_f32(ub, 8);
  (void)a;
  BREAKS(v_sum_r_f32(sum, x, 1, 1, 8));
}

/* All blocks store at the same place. */
AICORE_KERNEL(shared_address, arguments) {
  const ub_f32 x = ub_alloc_f32(ub, N);
  v_duplicate_f32(x, 1, N);
  sync_set(PIPE_V, PIPE_MTE3, 0);
  sync_wait(PIPE_V, PIPE_MTE3, 0);
  BREAKS(store_f32(a->y, x, 1, N));
}

/* Block 1 reads what block 0 writes. */
AICORE_KERNEL(shared_with_a_reader, arguments) {
  const ub_f32 x = ub_alloc_f32(ub, N);
  if (block_index() == 1) {
    BREAKS(load_f32(x, a->y, 1, N));
    return;
  }
  v_duplicate_f32(x, 1, N);
  sync_set(PIPE_V, PIPE_MTE3, 0);
  sync_wait(PIPE_V, PIPE_MTE3, 0);
  store_f32(a->y, x, 1, N);
}

static const struct broken {
  const char *name;
  tigon_sim_kernel *kernel;
  int64_t blocks;
  tigon_sim_rule rule;
  const char *what, *fix; /* pieces of the report */
} table[] = {
    {"ub_overflow", ub_overflow, 1, SIM_UB_OVERFLOW, "writes 4194304 bytes of UB at 0x0", "smaller tiles"},
    {"alloc_overflow", alloc_overflow, 1, SIM_UB_OVERFLOW, "there are 188160 in all", "smaller tiles"},
    {"misaligned_ub", misaligned_ub, 1, SIM_MISALIGNED, "UB address 0x4 must be a multiple of 32",
     "begin on a multiple of 8 elements"},
    {"misaligned_memory", misaligned_memory, 1, SIM_MISALIGNED, "must be a multiple of the element's 4 bytes",
     "the right pointer"},
    {"uninitialised", uninitialised, 1, SIM_UNINITIALISED, "nothing has written 0xa4", "take fewer elements"},
    {"outside_buffer", outside_buffer, 1, SIM_OUTSIDE_BUFFER, "nearest before it is x, 2048 bytes",
     "cut rows and columns off"},
    {"store_to_input", store_to_input, 1, SIM_OUTSIDE_BUFFER, "writes x, which this launch only reads",
     "the right pointer"},
    {"read_after_write", read_after_write, 1, SIM_READ_AFTER_WRITE,
     "v_add_f32 on V touches UB at 0x0, and nothing orders it after instruction 1 (load_f32",
     "sync_set(PIPE_MTE2, PIPE_V, id)"},
    {"read_after_write_on_one_pipe", read_after_write_on_one_pipe, 1, SIM_READ_AFTER_WRITE,
     "after instruction 1 (v_duplicate_f32", "sync_pipe(PIPE_V)"},
    {"read_after_write_in_memory", read_after_write_in_memory, 1, SIM_READ_AFTER_WRITE, "load_f32 on MTE2 touches y",
     "sync_set(PIPE_MTE3, PIPE_MTE2, id)"},
    {"write_after_read", write_after_read, 1, SIM_WRITE_AFTER_READ, "a write after a read",
     "sync_set(PIPE_V, PIPE_MTE2, id)"},
    {"write_after_write", write_after_write, 1, SIM_WRITE_AFTER_WRITE, "a write after a write",
     "sync_set(PIPE_MTE2, PIPE_V, id)"},
    {"crossed_flags", crossed_flags, 1, SIM_READ_AFTER_WRITE, "UB at 0x400", "sync_wait(PIPE_MTE2, PIPE_V, id)"},
    {"deadlock", deadlock, 1, SIM_DEADLOCK, "V waits for flag 1 from MTE2 for ever", "sync_set(PIPE_MTE2, PIPE_V, 1)"},
    {"deadlock_in_a_circle", deadlock_in_a_circle, 1, SIM_DEADLOCK, "V waits for flag 0 from MTE3",
     "sync_set(PIPE_MTE3, PIPE_V, 0)"},
    {"flag_out_of_range", flag_out_of_range, 1, SIM_BAD_FLAG, "flag 8 from V to MTE3 does not exist", "from 0 to 7"},
    {"flag_set_twice", flag_set_twice, 1, SIM_BAD_FLAG, "is set again", "another id"},
    {"flag_set_early", flag_set_early, 1, SIM_EARLY_FLAG, "nothing tells V that the wait in line",
     "sync_set(PIPE_MTE2, PIPE_V, id) after that wait"},
    {"scalar_barrier", scalar_barrier, 1, SIM_BAD_BARRIER, "the scalar pipe has no barrier", "leave it out"},
    {"half_a_selection", half_a_selection, 1, SIM_UNINITIALISED, "nothing has written 0x408", "v_duplicate it first"},
    {"flag_left_set", flag_left_set, 1, SIM_BAD_FLAG, "still set at the end", "sync_wait(PIPE_V, PIPE_MTE3, 0)"},
    {"repeat_overflow", repeat_overflow, 1, SIM_REPEAT, "repeats 256 times, can 1 to 255", "a loop of calls"},
    {"too_many_rows", too_many_rows, 1, SIM_REPEAT, "has 4096 rows of 4 bytes", "several calls"},
    {"misaligned_gather", misaligned_gather, 1, SIM_MISALIGNED, "offset 1 of element 1 must be a multiple of 4",
     "bytes, not elements"},
    {"gather_overlap", gather_overlap, 1, SIM_OVERLAP, "element 7 comes from its own destination", "another array"},
    {"uninitialised_gather", uninitialised_gather, 1, SIM_UNINITIALISED, "nothing has written 0x20", "load or"},
    {"overlap", overlap, 1, SIM_OVERLAP, "destination 0x20 (256 bytes) and source 0x0", "another array"},
    {"overlap_of_steps", overlap_of_steps, 1, SIM_OVERLAP, "destination 0x100 (512 bytes)", "another array"},
    {"stale_mask", stale_mask, 1, SIM_STALE_MASK, "which is its count, 256", "v_mask_f32(lanes) after"},
    {"no_mask", no_mask, 1, SIM_STALE_MASK, "runs under no mask", "v_mask_f32(lanes) first"},
    {"shared_address", shared_address, 2, SIM_SHARED_ADDRESS, "it writes y at byte 0, and block 0 writes there too",
     "a second launch"},
    {"shared_with_a_reader", shared_with_a_reader, 2, SIM_SHARED_ADDRESS, "it reads y at byte 0", "a second launch"},
};

static float x[2 * N], y[2 * N];

static bool run(tigon_sim *sim, const char *name, tigon_sim_kernel *kernel, int64_t blocks) {
  const arguments a = {(gm_ptr)x, (gm_ptr)y};
  tigon_sim_buffer(sim, "x", x, sizeof x, SIM_READS);
  tigon_sim_buffer(sim, "y", y, sizeof y, SIM_READS | SIM_WRITES);
  return tigon_sim_launch(sim, name, kernel, &a, blocks);
}

static void every_rule_is_reported(void **state) {
  for (size_t i = 0; i < sizeof table / sizeof *table; ++i) {
    const struct broken *t = &table[i];
    assert_false(run(*state, t->name, t->kernel, t->blocks));
    const tigon_sim_report_text *report = tigon_sim_report(*state);
    if (report->rule != t->rule || report->line != marked || !strstr(report->text, t->what) ||
        !strstr(report->text, t->fix) || strncmp(report->text, t->name, strlen(t->name)) != 0)
      fail_msg("%s (line %d): rule %d in line %d: %s", t->name, marked, (int)report->rule, report->line, report->text);
    assert_true(strlen(report->text) + 1 < sizeof report->text); /* nothing was cut off */
    assert_true(report->instruction > 0);
  }
}

static void every_rule_has_a_kernel(void **state) {
  (void)state;
  bool seen[SIM_SHARED_ADDRESS + 1] = {[SIM_OK] = true, [SIM_BLOCKS] = true};
  for (size_t i = 0; i < sizeof table / sizeof *table; ++i) seen[table[i].rule] = true;
  for (int rule = 0; rule <= SIM_SHARED_ADDRESS; ++rule) assert_true(seen[rule]);
}

static void too_many_blocks(void **state) {
  assert_false(run(*state, "right", right, 65536));
  assert_int_equal(tigon_sim_report(*state)->rule, SIM_BLOCKS);
  assert_string_equal(
      tigon_sim_report(*state)->text,
      "right: 65536 blocks, a launch can have 1 to 65535. Fix: launch as many blocks as there are cores, and let "
      "each loop over its tasks");
  assert_false(run(*state, "right", right, 0));
}

/* The right kernel runs after all these, twice to the same figures. */
static void the_right_kernel_is_right(void **state) {
  for (int i = 0; i < 2 * N; ++i) x[i] = (float)i;
  tigon_sim_counters first = {0};
  for (int again = 0; again < 2; ++again) {
    memset(y, 0xff, sizeof y);
    tigon_sim_reset(*state);
    assert_true(run(*state, "right", right, 2));
    assert_int_equal(tigon_sim_report(*state)->rule, SIM_OK);
    for (int i = 0; i < 2 * N; ++i) assert_true(y[i] == 2 * x[i]);
    const tigon_sim_counters *counted = tigon_sim_counted(*state);
    assert_int_equal(counted->bytes_loaded, sizeof x);
    assert_int_equal(counted->bytes_stored, sizeof y);
    assert_int_equal(counted->instructions, 2 * 7);
    assert_int_equal(counted->ub_bytes, 2 * N * 4);
    if (again) assert_memory_equal(counted, &first, sizeof first);
    first = *counted;
  }
}

/* What each order of the pipes makes of a kernel; the right ones leave the same y in all of them. */
static const tigon_sim_modes orders[] = {{.order = SIM_EAGER},
                                         {.order = SIM_V_FIRST},
                                         {.order = SIM_MTE2_FIRST},
                                         {.order = SIM_MTE3_FIRST},
                                         {.order = SIM_RANDOM, .order_seed = 1},
                                         {.order = SIM_RANDOM, .order_seed = 2}};
enum { ORDERS = sizeof orders / sizeof *orders };

static void right_kernels_are_right_in_every_order(void **state) {
  for (int o = 0; o < ORDERS; ++o) {
    tigon_sim_use(*state, &orders[o]);
    memset(y, 0xff, sizeof y);
    assert_true(run(*state, "right", right, 2));
    for (int i = 0; i < 2 * N; ++i) assert_true(y[i] == 2 * x[i]);
    if (!run(*state, "flag_set_in_time", flag_set_in_time, 1) ||
        !run(*state, "flag_set_in_time_by_others", flag_set_in_time_by_others, 1))
      fail_msg("order %d: %s", o, tigon_sim_report(*state)->text);
  }
  tigon_sim_use(*state, &orders[SIM_EAGER]);
}

/* The early flag is one that is set twice where V goes first, with no help from its rule; eagerly it is not. */
static void an_order_shows_what_eager_hides(void **state) {
  for (int o = 0; o < ORDERS; ++o) {
    tigon_sim_use(*state, &orders[o]);
    assert_false(run(*state, "flag_set_early", flag_set_early, 1));
    const tigon_sim_rule rule = tigon_sim_report(*state)->rule;
    assert_true(rule == SIM_EARLY_FLAG || (rule == SIM_BAD_FLAG && o != SIM_EAGER));
    if (o == SIM_V_FIRST) assert_int_equal(rule, SIM_BAD_FLAG);
    assert_false(run(*state, "deadlock", deadlock, 1));
    assert_int_equal(tigon_sim_report(*state)->rule, SIM_DEADLOCK);
    assert_false(run(*state, "read_after_write", read_after_write, 1));
    const tigon_sim_rule order = tigon_sim_report(*state)->rule;
    assert_true(order == SIM_READ_AFTER_WRITE || order == SIM_UNINITIALISED || order == SIM_WRITE_AFTER_READ);
  }
  tigon_sim_use(*state, &orders[SIM_EAGER]);
}

static void modes_come_from_the_environment(void **state) {
  static const struct {
    const char *name, *value, *sentence;
  } wrong[] = {
      {"TIGON_ASCEND_SIM_ORDER", "s",
       "TIGON_ASCEND_SIM_ORDER is \"s\", must be eager, v, mte2, mte3, random or random:SEED"},
      {"TIGON_ASCEND_SIM_ORDER", "random:-1",
       "TIGON_ASCEND_SIM_ORDER is \"random:-1\", must be eager, v, mte2, mte3, random or random:SEED"},
      {"TIGON_ASCEND_SIM_NOISE", "1:x",
       "TIGON_ASCEND_SIM_NOISE is \"1:x\", must be ULPS or ULPS:SEED, with ULPS from 0 to 1024"},
      {"TIGON_ASCEND_SIM_NOISE", "1025",
       "TIGON_ASCEND_SIM_NOISE is \"1025\", must be ULPS or ULPS:SEED, with ULPS from 0 to 1024"},
      {"TIGON_ASCEND_SIM_FLUSH", "yes", "TIGON_ASCEND_SIM_FLUSH is \"yes\", must be 0 or 1"},
  };
  tigon_sim_modes modes;
  const char *reason = "";
  (void)state;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
    setenv(wrong[i].name, wrong[i].value, 1);
    assert_false(tigon_sim_modes_read(&modes, &reason));
    assert_string_equal(reason, wrong[i].sentence);
    unsetenv(wrong[i].name);
  }
  setenv("TIGON_ASCEND_SIM_ORDER", "random:7", 1);
  setenv("TIGON_ASCEND_SIM_NOISE", "1:3", 1);
  setenv("TIGON_ASCEND_SIM_FLUSH", "1", 1);
  assert_true(tigon_sim_modes_read(&modes, &reason));
  assert_true(modes.order == SIM_RANDOM && modes.order_seed == 7 && modes.noise == 1 && modes.noise_seed == 3);
  assert_true(modes.flush);
  for (int i = 0; i < 3; ++i)
    unsetenv(((const char *[]){"TIGON_ASCEND_SIM_ORDER", "TIGON_ASCEND_SIM_NOISE", "TIGON_ASCEND_SIM_FLUSH"})[i]);
}

static int open_machine(void **state) {
  *state = tigon_sim_open(tigon_sim_soc_find("910b4"));
  return *state ? 0 : -1;
}
static int close_machine(void **state) {
  tigon_sim_close(*state);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_rule_is_reported),
      cmocka_unit_test(every_rule_has_a_kernel),
      cmocka_unit_test(too_many_blocks),
      cmocka_unit_test(the_right_kernel_is_right),
      cmocka_unit_test(right_kernels_are_right_in_every_order),
      cmocka_unit_test(an_order_shows_what_eager_hides),
      cmocka_unit_test(modes_come_from_the_environment),
  };
  return cmocka_run_group_tests(tests, open_machine, close_machine);
}
