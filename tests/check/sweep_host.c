/* Sweeps of what is around a kernel: which one ran, and who else was running. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check/internal.h"
#include "check/sweep.h"
#include "core/context.h"

/* ---- the path ---- */

/* The slots of the variant, and as many that count their calls and pass them on. */
static tigon_kernels real;
static long calls;
#define TIGON_SLOT(op, entry)                                                                                 \
  static tigon_status spy_##op##_##entry(tigon_queue *queue, const tigon_##op##_##entry##_problem *problem) { \
    ++calls;                                                                                                  \
    return real.op##_##entry.run(queue, problem);                                                             \
  }
#define TIGON_COMPOSITE(op, entry)
#include "ops.def"
#undef TIGON_SLOT

static void spy_on(tigon_kernels *kernels) {
  real = *kernels;
#define TIGON_SLOT(op, entry) \
  if (kernels->op##_##entry.run) kernels->op##_##entry.run = spy_##op##_##entry;
#include "ops.def"
#undef TIGON_SLOT
#undef TIGON_COMPOSITE
}

/* Do the entry's slots of two variants hold one function, built in one way? A composite has none of its own. */
static bool same_function(const check_target *target, const tigon_kernels *a, const tigon_kernels *b) {
  const bool same[] = {
#define TIGON_SLOT(op, entry) a->op##_##entry.run == b->op##_##entry.run,
#define TIGON_COMPOSITE(op, entry) false,
#include "ops.def"
#undef TIGON_SLOT
#undef TIGON_COMPOSITE
  };
  if (!same[target->entry]) return false;
  const check_target other = {.device = target->device, .kernels = b};
  char built[256];
  check_pair pair = check_pair_open(target, 1);
  const tigon_backend *backend = pair.context->queue.backend;
  if (backend->built) snprintf(built, sizeof built, "%s", backend->built(&pair.context->queue));
  check_pair_close(&pair);
  if (!backend->built) return true;
  pair = check_pair_open(&other, 1);
  const bool is_same = strcmp(backend->built(&pair.context->queue), built) == 0;
  check_pair_close(&pair);
  return is_same;
}

static bool is_listed(const char *slot, const char *const *list, size_t count) {
  for (size_t i = 0; i < count; ++i)
    if (strcmp(list[i], slot) == 0) return true;
  return false;
}

/* Whose function a variant has for a slot: src/cpu/avx512_bf16.def and amx.def list their own; the others are those of the variant
 * below. */
static const char *owner(const char *variant, const char *slot) {
#define TIGON_SLOT(op, entry) #op "_" #entry,
  static const char *const amx[] = {
#include "cpu/amx.def"
  };
#define TIGON_SLOT(op, entry) #op "_" #entry,
  static const char *const pairs[] = {
#include "cpu/avx512_bf16.def"
  };
  if (strcmp(variant, "amx") == 0 && !is_listed(slot, amx, sizeof amx / sizeof *amx)) variant = "avx512_bf16";
  if (strcmp(variant, "avx512_bf16") == 0 && !is_listed(slot, pairs, sizeof pairs / sizeof *pairs)) variant = "avx512";
  return variant;
}

/* Must they? */
static bool must_be_same(int entry, const tigon_kernels *a, const tigon_kernels *b) {
  static const char *const names[] = {
#define TIGON_SLOT(op, entry) #op "_" #entry,
#define TIGON_COMPOSITE(op, entry) NULL,
#include "ops.def"
#undef TIGON_SLOT
#undef TIGON_COMPOSITE
  };
  return names[entry] && strcmp(owner(a->variant, names[entry]), owner(b->variant, names[entry])) == 0;
}

void check_sweep_path(const check_target *target, check_tally *tally) {
  check_pair pair = check_pair_open(target, 2);
  tigon_kernels spied = *target->kernels;
  spy_on(&spied);
  pair.context->kernels = &spied;
  for (int option = 0; option < check_op_at(target->entry)->options; ++option)
    for (int size = CHECK_SMALL; size <= CHECK_MEDIUM; ++size) {
      const check_case c = check_case_of(target, option);
      check_twist twist = {0};
      check_dims(target->entry, (check_size)size, twist.dims);
      check k;
      calls = 0;
      check_run(&k, &c, pair.context, 1, 0, NULL, &twist);
      if (calls == 0) check_fail(&k, "no slot of %s was called", target->kernels->variant);
      if (strcmp(tigon_last_variant(pair.context), target->kernels->variant) != 0)
        check_fail(&k, "tigon_last_variant() is %s", tigon_last_variant(pair.context));
      check_count(tally, k.failure, "o%d", option);
      check_release(&k);
    }
  for (const tigon_kernels *const *v = pair.context->queue.backend->variants(); *v; ++v)
    if (*v != target->kernels && tigon_queue_runs(&pair.context->queue, *v) &&
        same_function(target, target->kernels, *v) != must_be_same(target->entry, *v, target->kernels))
      check_count(tally, "one function is in both, or should be", "%s and %s", (*v)->variant, target->kernels->variant);
  check_pair_close(&pair);
}

/* ---- the crowd ---- */

/* What everybody runs: a case, and the run whose inputs they share and whose bits they must have. */
typedef struct scene {
  const check_target *target;
  check_case c;
  check_twist twist;
  const check *first;
} scene;

/* On a context of its own. */
static void perform(const scene *s, int threads, char failure[512]) {
  check_pair own = check_pair_open(s->target, threads);
  check k;
  check_run(&k, &s->c, own.context, 1, 1, NULL, &s->twist);
  if (!k.failure[0]) check_same_bits(&k, s->first, "beside others");
  memcpy(failure, k.failure, sizeof k.failure);
  check_release(&k);
  check_pair_close(&own);
}

enum { CROWD = 16, OPTIONS = 8, BEFORE = 2 };
static scene scenes[BEFORE * OPTIONS];
static int scene_count;

typedef struct member {
  int seed, runs;
  char failure[512];
} member;

/* Four random scenes. */
static void *act(void *argument) {
  member *m = argument;
  unsigned state = (unsigned)m->seed;
  for (m->runs = 0; m->runs < 4 && !m->failure[0]; ++m->runs) {
    state = state * 1664525u + 1013904223u;
    perform(&scenes[(state >> 8) % (unsigned)scene_count], 1 + m->runs % 3, m->failure);
  }
  check_drop_spares();
  return NULL;
}

static void in_threads(check_tally *tally) {
  pthread_t threads[CROWD];
  member members[CROWD] = {0};
  for (int i = 0; i < CROWD; ++i) {
    members[i].seed = (int)tally->runs * CROWD + i;
    if (pthread_create(&threads[i], NULL, act, &members[i])) abort();
  }
  for (int i = 0; i < CROWD; ++i) pthread_join(threads[i], NULL);
  for (int i = 0; i < CROWD; ++i) check_count(tally, members[i].failure, "thread %d of %d", i + 1, CROWD);
}

static void in_region(const scene *s, check_tally *tally) {
  char failure[4][512] = {{0}};
#if defined(_OPENMP)
#pragma omp parallel for num_threads(4)
#endif
  for (int i = 0; i < 4; ++i) {
    perform(s, 2, failure[i]);
    check_drop_spares(); /* the thread's */
  }
  for (int i = 0; i < 4; ++i) check_count(tally, failure[i], "inside an OpenMP region");
}

/* A child that hangs is ended by its alarm. Not with sanitizers: their allocator's locks are not given back in a child,
 * and an OpenMP worker on its way out may hold one. Not on a device: its driver serves no child of a process that has used it. */
static void in_child(const scene *s, check_tally *tally) {
#if defined(TIGON_SANITIZE)
  return;
#endif
  if (check_is_away(s->first)) return;
  const pid_t child = fork();
  if (child == 0) {
    char failure[512];
    alarm(60);
    perform(s, 3, failure);
    _exit(failure[0] != 0);
  }
  int status = -1;
  if (child > 0) waitpid(child, &status, 0);
  check_count(tally,
              status == 0           ? ""
              : WIFSIGNALED(status) ? "it was ended by a signal"
                                    : "its bits differ",
              "in a child of fork()");
}

/* Every option is a scene; those of the entry before stay on stage, so that different operators meet. */
void check_sweep_crowd(const check_target *target, check_tally *tally) {
  static check firsts[BEFORE][OPTIONS];
  static check_target targets[BEFORE];
  static int turn;
  check_pair pair = check_pair_open(target, 2);
  check *first = firsts[turn];
  targets[turn] = *target;
  const int options = check_op_at(target->entry)->options, base = turn * OPTIONS;
  for (int o = 0; o < OPTIONS; ++o) {
    check_release(&first[o]);
    scene *s = &scenes[base + o];
    *s = (scene){.target = &targets[turn], .c = check_case_of(target, o % options), .first = &first[o]};
    check_dims(target->entry, CHECK_MEDIUM, s->twist.dims);
    check_run(&first[o], &s->c, pair.context, 1, 1, NULL, &s->twist);
    s->twist.shared = &first[o];
  }
  if (scene_count < base + OPTIONS) scene_count = base + OPTIONS;
  turn = (turn + 1) % BEFORE;
  in_threads(tally);
  in_region(&scenes[base], tally);
  in_child(&scenes[base + 1], tally);
  for (int o = 0; o < OPTIONS; ++o)
    if (!check_buffers_intact(&first[o])) check_count(tally, first[o].failure, "o%d, shared inputs", o % options);
  check_pair_close(&pair);
}
