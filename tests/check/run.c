/* Which cases there are, and the runs of one case. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check/internal.h"
#include "core/context.h"

static const check_op *const ops[] = {
#define TIGON_SLOT(op, entry) &tigon_check_##op##_##entry,
#define TIGON_COMPOSITE(op, entry) TIGON_SLOT(op, entry)
#include "ops.def"
#undef TIGON_SLOT
#undef TIGON_COMPOSITE
};

bool check_row_shapes(int index, int64_t tile, int64_t dims[CHECK_DIMS]) {
  const int64_t t = tile, u = 4 * tile; /* kernels unroll four vectors */
  const int64_t shapes[][2] = {
      {1, 1},         {3, t},    {5, t + 1}, {2, 2 * t - 1}, {17, u - 1}, {4, u},     {3, u + 1},
      {7, 2 * u - 1}, {9, 131},  {130, 7},   {257, 33},      {6, 1000},   {3, 4096},  {4, 4097},
      {2, 8191},      {33, 523}, {1, 16411}, {2, 40009},     {67, 1},     {19, 3584},
  };
  if (index >= (int)(sizeof shapes / sizeof *shapes)) return false;
  dims[0] = shapes[index][0];
  dims[1] = shapes[index][1] > 0 ? shapes[index][1] : 1;
  return true;
}

/* Small shapes take every option with every fill; large ones one option each, in turn. */
enum { EVERY_FILL_SHAPE = 4, LARGE = 8000, FORCED_SHAPES = 8 };

bool check_case_at(int entry, tigon_dtype dtype, int64_t tile, int index, check_case *c) {
  const check_op *op = ops[entry];
  int64_t dims[CHECK_DIMS] = {0};
  int at = 0;
  for (int shape = 0; op->shape(shape, tile, dims); ++shape) {
    int64_t size = 1;
    for (int d = 0; d < CHECK_DIMS; ++d) size *= dims[d] > 0 ? dims[d] : 1;
    const int options = size > LARGE ? 1 : op->options;
    const int fills = op->uses_fill && shape == EVERY_FILL_SHAPE ? CHECK_FILLS : 1;
    for (int f = 0; f < fills; ++f)
      for (int o = 0; o < options; ++o, ++at)
        if (at == index) {
          *c = (check_case){
              entry, dtype, shape, options == 1 ? shape % op->options : o, (check_fill)f, (shape + o) % 2 != 0};
          return true;
        }
    memset(dims, 0, sizeof dims);
  }
  return false;
}

void check_case_label(const check_case *c, int64_t tile, char label[128]) {
  static const char *const fills[] = {"uniform", "constant", "outlier", "denormal", "special"};
  int64_t dims[CHECK_DIMS] = {0};
  ops[c->entry]->shape(c->shape, tile, dims);
  int used = snprintf(label, 128, "%s/", tigon_entry_at(c->entry)->entry);
  for (int d = 0; d < CHECK_DIMS && dims[d]; ++d)
    used += snprintf(label + used, (size_t)(128 - used), d ? "x%lld" : "%lld", (long long)dims[d]);
  snprintf(label + used, (size_t)(128 - used), "/o%d/%s/%s", c->option, fills[c->fill], c->padded ? "padded" : "dense");
}

/* One run; what it made stays in k. */
static void run(check *k, const check_case *c, tigon_context *context, uint64_t seed, int64_t tile, int place,
                const check *oracle) {
  *k = (check){.context = context,
               .dtype = c->dtype,
               .option = c->option,
               .fill = c->fill,
               .padded = c->padded,
               .seed = seed,
               .oracle = oracle,
               .place = place};
  ops[c->entry]->shape(c->shape, tile, k->dims);
  ops[c->entry]->run(k);
  if (oracle && !k->failure[0]) check_exact(k);
  if (!k->failure[0]) check_buffers_intact(k);
}

/* What is run after the first: threads, and where buffers lie. Results must have the first run's bits. */
static const struct rerun {
  int threads, place;
  const char *what;
} reruns[] = {{2, 0, "when run again"}, {1, 1, "on 1 thread"}, {3, 1, "on 3 threads"}, {8, 0, "on 8 threads"}};
enum { RERUNS = sizeof reruns / sizeof *reruns };

static bool fails(check *k, const char *when, char failure[512]) {
  if (!k->failure[0]) return false;
  snprintf(failure, 512, "%.400s%s%s", k->failure, *when ? " " : "", when);
  return true;
}

static bool runs_fail(const check_case *c, tigon_context *context, uint64_t seed, int64_t tile, const check *oracle,
                      double *worst, char failure[512]) {
  check first, again;
  context->queue.threads = 2;
  run(&first, c, context, seed, tile, 0, oracle);
  *worst = first.worst;
  bool failed = fails(&first, "", failure);
  if (!failed && strcmp(tigon_last_variant(context), context->kernels->variant) != 0) {
    snprintf(failure, 512, "%s ran, %s was asked for", tigon_last_variant(context), context->kernels->variant);
    failed = true;
  }
  const bool any_threads = strstr(tigon_context_gemm(context), "thread_count") != NULL;
  for (int i = 0; i < RERUNS && !failed; ++i) {
    if (reruns[i].threads != 2 && !any_threads) continue;
    context->queue.threads = reruns[i].threads;
    run(&again, c, context, seed, tile, reruns[i].place, oracle);
    if (!again.failure[0]) check_same_bits(&again, &first, reruns[i].what);
    failed = fails(&again, reruns[i].what, failure);
    check_release(&again);
  }
  /* Every planner case that fits: the answer is the same within the bound. */
  context->queue.threads = 2;
  for (tigon_plan_case force = TIGON_CASE_A; force <= TIGON_CASE_F && !failed && c->shape < FORCED_SHAPES; ++force) {
    context->force = force;
    run(&again, c, context, seed, tile, 0, oracle);
    char when[24];
    snprintf(when, sizeof when, "with case %c forced", tigon_plan_case_letter(force));
    failed = fails(&again, when, failure);
    check_release(&again);
    context->force = TIGON_CASE_AUTO;
  }
  check_release(&first);
  return failed;
}

check_outcome check_run_case(const check_case *c, const char *device, const char *variant, const tigon_kernels *kernels,
                             uint64_t seed, double *worst, char failure[512]) {
  const tigon_context_desc oracle_desc = {.device = "ref"};
  const tigon_context_desc desc = {.device = device, .variant = variant};
  tigon_context *oracle_context = NULL, *context = NULL;
  failure[0] = 0;
  *worst = 0;
  check_outcome outcome = CHECK_FAILED;
  if (tigon_context_create(&oracle_desc, &oracle_context) || tigon_context_create(&desc, &context)) {
    snprintf(failure, 512, "%.500s", tigon_last_error(NULL));
  } else {
    if (kernels) context->kernels = kernels;
    const int64_t tile = context->kernels->tile;
    if (!(tigon_entry_dtypes(context->kernels, c->entry) & TIGON_BIT(c->dtype))) {
      outcome = CHECK_SKIPPED;
    } else {
      check oracle;
      run(&oracle, c, oracle_context, seed, tile, 0, NULL);
      if (!fails(&oracle, "on the oracle", failure) && !runs_fail(c, context, seed, tile, &oracle, worst, failure))
        outcome = CHECK_PASSED;
      check_release(&oracle);
    }
  }
  tigon_context_destroy(context);
  tigon_context_destroy(oracle_context);
  return outcome;
}
