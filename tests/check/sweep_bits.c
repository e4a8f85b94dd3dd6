/* Sweeps that hold a run's bits against another run's: again, on other numbers of threads, fewer rows, one buffer as two. */
#include <stdio.h>
#include <string.h>

#include "check/internal.h"
#include "check/sweep.h"
#include "core/context.h"

static bool writes(const check_buffer *b) { return b->role == CHECK_ROLE_OUT || b->role == CHECK_ROLE_INOUT; }

/* ---- again ---- */

void check_sweep_repeat(const check_target *target, check_tally *tally) {
  static const int threads[] = {1, 2, 3, 4, 8};
  enum { RUNS = 100, NUMBERS = sizeof threads / sizeof *threads };
  check_pair pair = check_pair_open(target, 2);
  check_twist twist = {0};
  check_dims(target->entry, CHECK_MEDIUM, twist.dims);
  for (int option = 0; option < check_op_at(target->entry)->options; ++option) {
    const check_case c = check_case_of(target, option);
    check first, again;
    check_run(&first, &c, pair.context, 1, 0, NULL, &twist);
    for (int i = 0; i < RUNS; ++i) {
      if (!check_takes(tally)) continue;
      pair.context->queue.threads = threads[i % NUMBERS];
      check_run(&again, &c, pair.context, 1, i % 2, NULL, &twist);
      if (!again.failure[0]) check_same_bits(&again, &first, "in a later run");
      check_count(tally, again.failure, "o%d, run %d on %d threads", option, i + 1, threads[i % NUMBERS]);
      check_release(&again);
    }
    check_release(&first);
  }
  check_pair_close(&pair);
}

/* ---- fewer rows ---- */

void check_sweep_batch(const check_target *target, check_tally *tally) {
  static const int64_t parts[][2] = {{0, 1}, {137, 1}, {299, 1}, {0, 7}, {5, 7}, {293, 7}, {0, 257}, {43, 257}};
  check_pair pair = check_pair_open(target, 2);
  for (int option = 0; option < check_op_at(target->entry)->options; ++option) {
    if (!check_rows_apart(target->entry, option)) continue;
    const check_case c = check_case_of(target, option);
    check_twist twist = {0};
    if (!check_dims(target->entry, CHECK_BATCH, twist.dims)) break;
    check whole, part;
    check_run(&whole, &c, pair.context, 1, 0, NULL, &twist);
    twist.whole = &whole;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; ++i) {
      twist.first = parts[i][0], twist.dims[0] = parts[i][1];
      check_run(&part, &c, pair.context, 1, 0, NULL, &twist);
      if (part.failure[0] || check_same_rows(&part, &whole, twist.first))
        check_count(tally, part.failure, "o%d, %lld rows from row %lld", option, (long long)parts[i][1],
                    (long long)parts[i][0]);
      check_release(&part);
    }
    check_release(&whole);
  }
  check_pair_close(&pair);
}

/* ---- distant rows ---- */

void check_sweep_far(const check_target *target, check_tally *tally) {
  check_twist near = {0};
  if (!check_dims(target->entry, CHECK_FAR, near.dims)) return;
  check_twist distant = near;
  distant.pitch = (INT64_C(1) << 31) + 192;
  check_pair pair = check_pair_open(target, 2);
  for (int option = 0; option < check_op_at(target->entry)->options; ++option) {
    const check_case c = check_case_of(target, option);
    check oracle, here, there;
    check_run(&oracle, &c, pair.oracle, 1, 0, NULL, &distant);
    check_run(&here, &c, pair.context, 1, 0, NULL, &near);
    check_run(&there, &c, pair.context, 1, 0, &oracle, &distant);
    if (!here.failure[0] && !there.failure[0]) check_same_bits(&there, &here, "far apart");
    check_count(tally, here.failure[0] ? here.failure : there.failure, "o%d", option);
    check_release(&there);
    check_release(&here);
    check_release(&oracle);
  }
  check_pair_close(&pair);
}

/* ---- one buffer as two ---- */

/* The call wrote it, or may have: an output, or what differs now. */
static bool written(const check_buffer *b) {
  return b->role == CHECK_ROLE_OUT || (b->role == CHECK_ROLE_INOUT && memcmp(b->inner, b->before, b->inner_bytes) != 0);
}

/* A call that was refused wrote nothing; one that was not gave the bits of one with the two apart. */
static void judge(check *k, const check *apart, const check_twist *w) {
  if (k->status == TIGON_ERROR_ALIAS) {
    check_unwritten(k);
  } else if (k->status != TIGON_OK) {
    check_fail(k, "%s: %s", tigon_status_name(k->status), tigon_last_error(k->context));
  } else if (w->shift || k->buffers[w->over].role == CHECK_ROLE_WORKSPACE) {
    check_fail(k, "an overlap was not refused");
  } else {
    for (int i = 0; i < k->count; ++i) /* not what an output that lies there has changed */
      if (!written(&apart->buffers[i])) k->buffers[i].role = CHECK_ROLE_IN;
    check_same_bits(k, apart, "as one buffer");
  }
}

/* The pair of `w` as one buffer, and apart with the same values. */
static void try_pair(const check_pair *pair, const check_case *c, check_twist w, check_tally *tally) {
  check k, apart = {0};
  check_run(&k, c, pair->context, 1, 1, NULL, &w);
  check_twist own = w;
  own.apart = true;
  if (k.status == TIGON_OK && w.shift == 0) check_run(&apart, c, pair->context, 1, 1, NULL, &own);
  judge(&k, &apart, &w);
  check_count(tally, k.failure, "o%d, %s and %s as one, %lld elements apart", c->option, k.buffers[w.under].name,
              k.buffers[w.over].name, (long long)w.shift);
  check_release(&apart);
  check_release(&k);
}

static bool is_tensor(const check_buffer *b) { return b->role == CHECK_ROLE_IN || writes(b); }

void check_sweep_alias(const check_target *target, check_tally *tally) {
  check_pair pair = check_pair_open(target, 1);
  for (int option = 0; option < check_op_at(target->entry)->options; ++option) {
    const check_case c = check_case_of(target, option);
    check_twist w = {.aliases = true};
    check_dims(target->entry, CHECK_SMALL, w.dims);
    check plain;
    check_run(&plain, &c, pair.context, 1, 1, NULL, &w);
    for (w.over = 1; w.over < plain.count; ++w.over)
      for (w.under = 0; w.under < w.over; ++w.under) {
        const check_buffer *a = &plain.buffers[w.under], *b = &plain.buffers[w.over];
        if (is_tensor(a) && b->role == CHECK_ROLE_WORKSPACE) {
          w.shift = 0;
          try_pair(&pair, &c, w, tally);
        }
        if (!is_tensor(a) || !is_tensor(b) || !(written(a) || written(b))) continue;
        const int64_t size = (int64_t)tigon_dtype_size(b->tensor.dtype), count = (int64_t)a->bytes / size;
        const int64_t shifts[] = {0, 1, count - 1};
        for (int s = 0; s < 3; ++s) {
          if (s > 0 && (shifts[s] < 1 || shifts[s] >= count)) continue;
          w.shift = shifts[s];
          try_pair(&pair, &c, w, tally);
        }
      }
    check_release(&plain);
  }
  check_pair_close(&pair);
}
