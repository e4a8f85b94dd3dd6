/* Options, their sentences, and the schedule of the learning rate. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "options.h"
#include "scaler.h"
#include "schedule.h"

static train_error error;

static void set(train_options *o, const char *name, const char *text) {
  const int index = train_option_find(name);
  assert_true(index >= 0);
  if (!train_option_set(o, index, text, "--", &error)) fail_msg("%s", error.text);
  o->given |= UINT64_C(1) << index;
}

static void table_is_sound(void **state) {
  (void)state;
  assert_true(train_option_count <= 64);
  for (int i = 0; i < train_option_count; ++i) {
    const train_option_row *row = &train_option_rows[i];
    if (!row->name) continue;
    assert_int_equal(train_option_find(row->name), i);
    assert_int_equal(row->what == NULL, row->kind == TRAIN_FLAG);
  }
}

/* Every saved value comes back from its text bit for bit. */
static void texts_round_trip(void **state) {
  (void)state;
  train_options a, b;
  train_options_init(&a);
  train_options_init(&b);
  a.lr = 0.1 + 0.2;
  a.rope_theta = 1e6 / 3;
  a.beta2 = 0.999;
  a.tie = true;
  a.seed = 8999999999999999;
  a.data = "a file";
  a.warmup = 17;
  a.vocab = 300;
  a.kv_heads = 2;
  a.intermediate = 352;
  char texts[64][128];
  for (int i = 0; i < train_option_count; ++i) {
    const train_option_row *row = &train_option_rows[i];
    if (!row->name || row->use == TRAIN_USE_RUN || row->kind == TRAIN_TEXT) continue;
    train_option_text(&a, i, texts[i], sizeof texts[i]);
    if (!train_option_set(&b, i, texts[i], "", &error)) fail_msg("%s", error.text);
  }
  assert_true(a.lr == b.lr && a.rope_theta == b.rope_theta && a.beta2 == b.beta2);
  assert_int_equal(a.tie, b.tie);
  assert_int_equal(a.seed, b.seed);
  assert_int_equal(a.warmup, b.warmup);
}

static void mistakes(void **state) {
  (void)state;
  static const struct {
    const char *name, *text, *sentence;
  } table[] = {
      {"steps", "abc", "--steps is \"abc\", must be a whole number from 0 to 1000000000"},
      {"steps", "-1", "--steps is \"-1\", must be a whole number from 0 to 1000000000"},
      {"steps", "1e3", "--steps is \"1e3\", must be a whole number from 0 to 1000000000"},
      {"steps", "", "--steps is \"\", must be a whole number from 0 to 1000000000"},
      {"seq", "99999999999999999999", "--seq is \"99999999999999999999\", must be a whole number from 1 to 1048576"},
      {"lr", "fast", "--lr is \"fast\", must be a number from 0 to 1e+06"},
      {"lr", "nan", "--lr is \"nan\", must be a number from 0 to 1e+06"},
      {"lr", "inf", "--lr is \"inf\", must be a number from 0 to 1e+06"},
      {"dtype", "f64", "--dtype is \"f64\", must be one of: f32 bf16 f16"},
      {"dtype", "f32 bf16", "--dtype is \"f32 bf16\", must be one of: f32 bf16 f16"},
      {"token-bits", "8", "--token-bits is \"8\", must be one of: 16 32"},
  };
  for (size_t i = 0; i < sizeof table / sizeof *table; ++i) {
    train_options o;
    train_options_init(&o);
    assert_false(train_option_set(&o, train_option_find(table[i].name), table[i].text, "--", &error));
    assert_string_equal(error.text, table[i].sentence);
    assert_int_equal(error.exit_code, TRAIN_EXIT_USAGE);
  }
}

static void cross_checks(void **state) {
  (void)state;
  static const struct {
    const char *options[3][2];
    int ranks;
    const char *sentence;
  } table[] = {
      {{{"hidden", "130"}}, 1, "--hidden is 130, must be a multiple of --heads (4)"},
      {{{"hidden", "12"}}, 1, "--hidden / --heads is 3, must be even (rotary positions turn pairs)"},
      {{{"kv-heads", "3"}}, 1, "--heads is 4, must be a multiple of --kv-heads (3)"},
      {{{"accumulate", "3"}}, 1, "--batch is 8, must be a multiple of 3 (1 rank x --accumulate 3)"},
      {{{"accumulate", "2"}, {"batch", "6"}}, 2, "--batch is 6, must be a multiple of 4 (2 ranks x --accumulate 2)"},
      {{{"warmup", "801"}}, 1, "--warmup is 801, must be at most --steps (800)"},
      {{{"heldout", "x"}}, 1, "--heldout is given without --data"},
      {{{"schedule", "wsd"}, {"decay-fraction", "0.95"}},
       1,
       "--warmup is 80, must be at most 40: --decay-fraction 0.95 of --steps 800 leaves no more"},
      {{{"keep-best", "1"}, {"eval-every", "0"}},
       1,
       "--keep-best goes by held-out losses, so --eval-every must be above 0"},
      {{{"compare", "1"}, {"dtype", "f16"}}, 1, "--compare has no f16: its --dtype must be f32 or bf16"},
      {{{"compare", "1"}}, 2, "--compare measures one process, so it cannot be used with mpirun"},
  };
  for (size_t i = 0; i < sizeof table / sizeof *table; ++i) {
    train_options o;
    train_options_init(&o);
    for (int j = 0; j < 3 && table[i].options[j][0]; ++j) set(&o, table[i].options[j][0], table[i].options[j][1]);
    assert_false(train_options_resolve(&o, table[i].ranks, &error));
    assert_string_equal(error.text, table[i].sentence);
  }
  train_options o;
  train_options_init(&o);
  assert_true(train_options_resolve(&o, 1, &error));
  assert_int_equal(o.kv_heads, 2);
  assert_int_equal(o.intermediate, 352); /* 8/3 of 128 is 341.3 */
  assert_int_equal(o.warmup, 80);
}

static void schedule(void **state) {
  (void)state;
  const train_schedule s = {.steps = 100, .warmup = 10, .lr = 2, .floor = 0.1};
  assert_true(fabs(train_learning_rate(&s, 1) - 0.2) < 1e-12);
  assert_true(fabs(train_learning_rate(&s, 10) - 2) < 1e-12);
  assert_true(fabs(train_learning_rate(&s, 11) - 2) < 1e-12);
  assert_true(fabs(train_learning_rate(&s, 100) - 0.2) < 1e-12);
  for (int64_t step = 11; step < 100; ++step)
    assert_true(train_learning_rate(&s, step + 1) <= train_learning_rate(&s, step));
  /* the cosine's middle: between steps 55 and 56 */
  assert_true(fabs(0.5 * (train_learning_rate(&s, 55) + train_learning_rate(&s, 56)) - 1.1) < 1e-12);
  const train_schedule none = {.steps = 1, .warmup = 0, .lr = 3, .floor = 0};
  assert_true(train_learning_rate(&none, 1) == 3);
  const train_schedule all = {.steps = 5, .warmup = 5, .lr = 1, .floor = 0};
  assert_true(train_learning_rate(&all, 5) == 1);
}

/* Each is the peak behind the warm-up, never rises, and ends where it must. */
static void schedules(void **state) {
  (void)state;
  static const struct {
    train_schedule_kind kind;
    double at_55, last;
  } table[] = {{TRAIN_LINEAR, 2 * (1 - 0.9 * 44 / 89.0), 0.2}, {TRAIN_CONSTANT, 2, 2}, {TRAIN_WSD, 2, 0.2}};
  for (size_t i = 0; i < sizeof table / sizeof *table; ++i) {
    const train_schedule s = {.steps = 100, .warmup = 10, .lr = 2, .floor = 0.1, .kind = table[i].kind, .decay = 20};
    assert_true(train_learning_rate(&s, 1) == 0.2 && train_learning_rate(&s, 10) == 2);
    assert_true(fabs(train_learning_rate(&s, 11) - 2) < 1e-12);
    assert_true(fabs(train_learning_rate(&s, 55) - table[i].at_55) < 1e-12);
    assert_true(fabs(train_learning_rate(&s, 100) - table[i].last) < 1e-12);
    for (int64_t step = 11; step < 100; ++step)
      assert_true(train_learning_rate(&s, step + 1) <= train_learning_rate(&s, step));
  }
  const train_schedule wsd = {.steps = 100, .warmup = 10, .lr = 2, .floor = 0.1, .kind = TRAIN_WSD, .decay = 20};
  assert_true(train_learning_rate(&wsd, 80) == 2);
  assert_true(fabs(train_learning_rate(&wsd, 81) - 2 * (0.1 + 0.9 * 19 / 20)) < 1e-12);
  train_options o;
  train_options_init(&o);
  set(&o, "schedule", "wsd");
  set(&o, "decay-fraction", "0.1");
  const train_schedule s = train_schedule_of(&o);
  assert_true(s.kind == TRAIN_WSD && s.decay == 80 && s.lr == 0.003 && s.floor == 0.1);
}

/* Growth after a run of good steps, half after a bad one, never below 1. */
static void loss_scale(void **state) {
  (void)state;
  train_options o;
  train_options_init(&o);
  assert_true(!train_scaler_start(&o).on && train_scaler_start(&o).scale == 1);
  set(&o, "dtype", "f16");
  set(&o, "growth-interval", "3");
  train_scaler s = train_scaler_start(&o);
  assert_true(s.on && s.scale == 65536);
  for (int i = 0; i < 2; ++i) train_scaler_grow(&s, &o);
  assert_true(train_scaler_back_off(&s, &o) && s.scale == 32768 && s.skipped == 1);
  for (int i = 0; i < 3; ++i) train_scaler_grow(&s, &o); /* a bad step starts the count again */
  assert_true(s.scale == 65536 && s.good_steps == 0);
  const train_scaler saved = {true, 12, 2, 5};
  train_scaler_resume(&s, &saved, &o);
  assert_true(s.scale == 12 && s.good_steps == 2 && s.skipped == 5);
  for (int i = 0; i < 4; ++i) assert_true(train_scaler_back_off(&s, &o));
  assert_true(s.scale == 1 && s.skipped == 9);
  assert_false(train_scaler_back_off(&s, &o));
  set(&o, "init-scale", "256"); /* given: the saved scale does not count, the skipped steps do */
  s = train_scaler_start(&o);
  train_scaler_resume(&s, &saved, &o);
  assert_true(s.scale == 256 && s.good_steps == 0 && s.skipped == 5);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(table_is_sound), cmocka_unit_test(texts_round_trip),
                                     cmocka_unit_test(mistakes),       cmocka_unit_test(cross_checks),
                                     cmocka_unit_test(schedule),       cmocka_unit_test(schedules),
                                     cmocka_unit_test(loss_scale)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
