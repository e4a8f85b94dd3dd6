/* The list of sweeps, and those that hold results against the oracle's: special values, shapes. */
#include "check/sweep.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check/internal.h"
#include "core/context.h"

static const check_sweep sweeps[] = {
    {"values", "NaN, Inf, -0, the least denormal and a large number in every position of every input",
     check_sweep_values, false, true},
    {"shapes", "every size from 1 to 130, at every offset from a page's start", check_sweep_shapes, false, true},
    {"repeat", "100 runs on 1, 2, 3, 4 and 8 threads: the same bits", check_sweep_repeat, false, true},
    {"batch", "1, 7 and 257 rows of 300 by themselves: the same bits", check_sweep_batch, false, false},
    {"alias", "every pair of buffers as one, and shifted: as if apart, or refused with nothing written",
     check_sweep_alias, false, false},
    {"far", "rows more than 2^31 elements apart: the bits of rows side by side", check_sweep_far, true, false},
    {"huge", "2^31 elements and more, in many rows and in three: the bits of a few rows by themselves",
     check_sweep_huge, false, false},
    {"path", "the variant's own kernel ran, and no other", check_sweep_path, false, false},
    {"crowd", "sixteen threads with inputs in common, inside an OpenMP region, after fork(): the same bits",
     check_sweep_crowd, false, false},
};

const check_sweep *check_sweep_at(int index) {
  return index >= 0 && index < (int)(sizeof sweeps / sizeof *sweeps) ? &sweeps[index] : NULL;
}

/* ---- what sweeps share ---- */

check_pair check_pair_open(const check_target *target, int threads) {
  const tigon_context_desc oracle = {.device = "ref"};
  const tigon_context_desc desc = {.device = target->device, .variant = target->kernels->variant, .threads = threads};
  check_pair pair;
  if (tigon_context_create(&oracle, &pair.oracle) || tigon_context_create(&desc, &pair.context)) {
    fprintf(stderr, "tigon check: %s\n", tigon_last_error(NULL));
    abort();
  }
  return pair;
}

void check_pair_close(check_pair *pair) {
  tigon_context_destroy(pair->oracle);
  tigon_context_destroy(pair->context);
}

check_case check_case_of(const check_target *target, int option) {
  return (check_case){.entry = target->entry, .dtype = target->dtype, .option = option};
}

bool check_takes(check_tally *tally) { return tally->seen++ % tally->parts == tally->part - 1; }

void check_count(check_tally *tally, const char *failure, const char *format, ...) {
  ++tally->runs;
  if (!*failure) return;
  ++tally->failed;
  if (tally->failure[0]) return;
  va_list list;
  va_start(list, format);
  const int used = vsnprintf(tally->failure, sizeof tally->failure, format, list);
  va_end(list);
  snprintf(tally->failure + used, sizeof tally->failure - (size_t)used, ": %.400s", failure);
}

/* The case as the twist has it, on the oracle and on the variant. */
static void against_oracle(const check_pair *pair, const check_case *c, const check_twist *twist, check *oracle,
                           check *k) {
  const check_place place = twist->offset ? CHECK_START : CHECK_END;
  check_run(oracle, c, pair->oracle, 1, place, NULL, twist);
  check_run(k, c, pair->context, 1, place, oracle, twist);
}

/* ---- special values ---- */

static double least(tigon_dtype dtype) {
  return dtype == TIGON_F16 ? 0x1p-24 : dtype == TIGON_BF16 ? 0x1p-133 : 0x1p-149;
}

static bool takes_values(const check_buffer *b) {
  return (b->role == CHECK_ROLE_IN || b->role == CHECK_ROLE_INOUT) && b->tensor.dtype != TIGON_I32 &&
         b->tensor.dtype != TIGON_I64;
}

enum { POSITIONS = 80 }; /* the most positions of an input */

static void sweep_input(const check_target *target, const check_pair *pair, const check_case *c, check_twist twist,
                        const check_buffer *input, check_tally *tally) {
  const tigon_dtype dtype = input->tensor.dtype;
  const double large = dtype == TIGON_F16 ? 65504 : check_large(target->entry);
  const double values[] = {(double)NAN, (double)INFINITY, -(double)INFINITY, -0.0, least(dtype), large, -large};
  int64_t count = 1;
  for (int d = 0; d < input->tensor.ndim; ++d) count *= input->tensor.shape[d];
  const int64_t step = count > POSITIONS ? count / POSITIONS : 1;
  for (int64_t at = 0; at < count; at += step)
    for (size_t v = 0; v < sizeof values / sizeof *values; ++v) {
      if (!check_takes(tally)) continue;
      twist.plant_at = at, twist.plant_value = values[v];
      check oracle, k;
      against_oracle(pair, c, &twist, &oracle, &k);
      check_count(tally, k.failure, "o%d, %s[%lld] is %g", c->option, input->name, (long long)at, values[v]);
      tally->other_kind += k.other_kind;
      check_release(&k);
      check_release(&oracle);
    }
}

void check_sweep_values(const check_target *target, check_tally *tally) {
  check_pair pair = check_pair_open(target, 1);
  for (int option = 0; option < check_op_at(target->entry)->options; ++option) {
    const check_case c = check_case_of(target, option);
    check_twist twist = {.plants = true, .plant_in = -1};
    check_dims(target->entry, CHECK_SMALL, twist.dims);
    check plain;
    check_run(&plain, &c, pair.oracle, 1, 0, NULL, &twist);
    for (int i = 0; i < plain.count; ++i)
      if (takes_values(&plain.buffers[i])) {
        twist.plant_in = i;
        sweep_input(target, &pair, &c, twist, &plain.buffers[i], tally);
      }
    check_release(&plain);
  }
  check_pair_close(&pair);
}

/* ---- shapes ---- */

enum { LARGEST_N = 130, EVERY_OPTION_N = 20, OFFSETS = 16 };

void check_sweep_shapes(const check_target *target, check_tally *tally) {
  check_pair pair = check_pair_open(target, 1);
  const int options = check_op_at(target->entry)->options;
  check_twist twist = {0};
  for (int walk = 0; check_dims_walk(target->entry, walk, 1, twist.dims); ++walk)
    for (int n = 1; n <= LARGEST_N; ++n) {
      check_dims_walk(target->entry, walk, n, twist.dims);
      twist.offset = 1 + n % OFFSETS;
      for (int o = 0; o < (n <= EVERY_OPTION_N ? options : 2); ++o) {
        if (!check_takes(tally)) continue;
        const check_case c = check_case_of(target, (n + o) % options);
        check oracle, k;
        against_oracle(&pair, &c, &twist, &oracle, &k);
        check_count(tally, k.failure, "o%d, way %d of n = %d", c.option, walk, n);
        check_release(&k);
        check_release(&oracle);
      }
    }
  check_pair_close(&pair);
}
