/* Which cases there are, and the runs of one case. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ascend/plan/plans.h"
#include "check/cases.h"
#include "check/internal.h"
#include "core/context.h"

static const check_op *const ops[] = {
#define TIGON_SLOT(op, entry) &tigon_check_##op##_##entry,
#define TIGON_COMPOSITE(op, entry) TIGON_SLOT(op, entry)
#include "ops.def"
#undef TIGON_SLOT
#undef TIGON_COMPOSITE
};

#define TIGON_SLOT(op, entry) \
  static tigon_status call_##op##_##entry(tigon_context *c, const void *args) { return tigon_##op##_##entry(c, args); }
#define TIGON_COMPOSITE(op, entry) TIGON_SLOT(op, entry)
#include "ops.def"
#undef TIGON_SLOT
#undef TIGON_COMPOSITE

tigon_status check_entry_call(int entry, tigon_context *context, const void *args) {
  static tigon_status (*const calls[])(tigon_context *, const void *) = {
#define TIGON_SLOT(op, entry) call_##op##_##entry,
#define TIGON_COMPOSITE(op, entry) TIGON_SLOT(op, entry)
#include "ops.def"
#undef TIGON_SLOT
#undef TIGON_COMPOSITE
  };
  return calls[entry](context, args);
}

const check_op *check_op_at(int entry) { return ops[entry]; }
void check_entry_run(check *k) { ops[k->entry]->run(k); }

bool check_row_shapes(int index, int64_t tile, int64_t dims[CHECK_DIMS]) {
  const int64_t t = tile, u = 4 * tile; /* kernels unroll four vectors */
  /* The last two: more rows than a GPU has stages for. */
  const int64_t shapes[][2] = {
      {1, 1},   {3, t},     {5, t + 1}, {2, 2 * t - 1}, {17, u - 1}, {4, u},     {3, u + 1}, {7, 2 * u - 1}, {9, 123},
      {130, 7}, {257, 33},  {6, 1000},  {3, 4096},      {4, 4097},   {2, 8191},  {33, 523},  {1, 16411},     {2, 40009},
      {67, 1},  {19, 3584}, {3, 5120},  {2, 7168},      {300, 24},   {72, 1032}, {4300, 8},  {4301, 8},
  };
  _Static_assert(sizeof shapes / sizeof *shapes == CHECK_ROW_SHAPES, "as many as the header says");
  if (index >= CHECK_ROW_SHAPES) return false;
  dims[0] = shapes[index][0];
  dims[1] = shapes[index][1] > 0 ? shapes[index][1] : 1;
  return true;
}

/* Small shapes take every option with every fill; large ones one option each, in turn. Rows of WIDE columns are split in
 * several parts. */
enum { EVERY_FILL_SHAPE = 4, LARGE = 8000, FORCED_SHAPES = 8, WIDE = 16384 };

/* The cases planned for each entry, TIGON_CASE_BIT or-ed. One check runs at a time. */
static unsigned planned[sizeof ops / sizeof *ops];

unsigned check_planned(int entry) { return planned[entry]; }

/* The op's own shapes, then those of the benchmark, whose option is theirs; *option < 0: each is walked. */
static bool shape_at(int entry, int shape, int64_t tile, int64_t dims[CHECK_DIMS], int *option) {
  int own = 0;
  memset(dims, 0, CHECK_DIMS * sizeof *dims);
  *option = -1;
  if (ops[entry]->shape(shape, tile, dims)) return true;
  while (ops[entry]->shape(own, tile, dims)) ++own;
  memset(dims, 0, CHECK_DIMS * sizeof *dims);
  return bench_case_small(entry, shape - own, dims, option);
}

bool check_case_at(int entry, tigon_dtype dtype, int64_t tile, int index, check_case *c) {
  const check_op *op = ops[entry];
  int64_t dims[CHECK_DIMS] = {0};
  int at = 0, only;
  for (int shape = 0; shape_at(entry, shape, tile, dims, &only); ++shape) {
    int64_t size = 1;
    for (int d = 0; d < CHECK_DIMS; ++d) size *= dims[d] > 0 ? dims[d] : 1;
    const int options = size > LARGE || only >= 0 ? 1 : op->options;
    const int fills = op->uses_fill && shape == EVERY_FILL_SHAPE ? CHECK_FILLS : 1;
    for (int f = 0; f < fills; ++f)
      for (int o = 0; o < options; ++o, ++at)
        if (at == index) {
          const int option = only >= 0 ? only : options == 1 ? shape % op->options : o;
          *c = (check_case){entry, dtype, shape, option, {0}, (check_fill)f, (shape + o) % 2 != 0};
          memcpy(c->dims, dims, sizeof dims);
          return true;
        }
  }
  return false;
}

void check_case_label(const check_case *c, char label[128]) {
  static const char *const fills[] = {"uniform", "constant", "outlier", "denormal", "special", "heavy", "cancel"};
  int used = snprintf(label, 128, "%s/", tigon_entry_at(c->entry)->entry);
  for (int d = 0; d < CHECK_DIMS && c->dims[d]; ++d)
    used += snprintf(label + used, (size_t)(128 - used), d ? "x%lld" : "%lld", (long long)c->dims[d]);
  snprintf(label + used, (size_t)(128 - used), "/o%d/%s/%s", c->option, fills[c->fill], c->padded ? "padded" : "dense");
}

void check_run(check *k, const check_case *c, tigon_context *context, uint64_t seed, check_place place,
               const check *oracle, const check_twist *twist) {
  const bool known = oracle && oracle->limit_count > 0;
  *k = (check){.context = context,
               .entry = c->entry,
               .dtype = c->dtype,
               .option = c->option,
               .fill = c->fill,
               .padded = c->padded,
               .seed = seed,
               .oracle = known ? NULL : oracle,
               .expected = oracle,
               .place = place,
               .twist = twist};
  memcpy(k->dims, twist && twist->dims[0] ? twist->dims : c->dims, sizeof k->dims);
  check_entry_run(k);
  if (twist && twist->aliases) return;
  const bool refused = k->status == TIGON_ERROR_UNSUPPORTED;
  if (known && !refused) check_known(k);
  if (oracle && !refused && !k->failure[0]) check_exact(k);
  if (refused && !k->failure[0]) check_unwritten(k);
  if (!k->failure[0]) check_buffers_intact(k);
}

/* What is run after the first: threads, and where buffers lie. Results must have the first run's bits, and so its bounds. */
static const struct rerun {
  int threads;
  check_place place;
  const char *what;
} reruns[] = {{2, CHECK_STRANGE, "when run again, with strange strides of extents of 1"},
              {1, CHECK_START, "on 1 thread"},
              {3, CHECK_START, "on 3 threads"},
              {8, CHECK_END, "on 8 threads"}};
enum { RERUNS = sizeof reruns / sizeof *reruns };

static bool fails(check *k, const char *when, char failure[512]) {
  if (!k->failure[0]) return false;
  snprintf(failure, 512, "%.400s%s%s", k->failure, *when ? " " : "", when);
  return true;
}

void check_add_errors(check_errors *to, const check_errors *from) {
  for (int i = 0; i < from->count; ++i) {
    const check_error *e = &from->of[i];
    int at = 0;
    while (at < to->count && strcmp(to->of[at].output, e->output) != 0) ++at;
    if (at == CHECK_ERRORS) continue;
    if (at == to->count) to->of[to->count++] = (check_error){.output = e->output};
    check_error *sum = &to->of[at];
    sum->ulp = fmax(sum->ulp, e->ulp), sum->share = fmax(sum->share, e->share);
    sum->ulps = fmax(sum->ulps, e->ulps), sum->factor = fmax(sum->factor, e->factor);
    sum->elements += e->elements, sum->other += e->other;
  }
}

/* Where a planner cuts calls: every case that fits, of wide rows the one that splits them, stays within the bound. */
static bool forced_fail(const check_case *c, tigon_context *context, uint64_t seed, const check *oracle,
                        char failure[512]) {
  if (!context->queue.backend->plans) return false;
  ascend_plans *plans = context->queue.backend->plans(&context->queue);
  bool wide = false, failed = false;
  for (int d = 0; d < CHECK_DIMS; ++d) wide = wide || c->dims[d] >= WIDE;
  for (tigon_plan_case force = TIGON_CASE_A; force <= TIGON_CASE_F && !failed; ++force) {
    if (c->shape >= FORCED_SHAPES && !(wide && force == TIGON_CASE_F)) continue;
    check again;
    char when[24];
    plans->force = force;
    check_run(&again, c, context, seed, 0, oracle, NULL);
    snprintf(when, sizeof when, "with case %c forced", tigon_plan_case_letter(force));
    failed = fails(&again, when, failure);
    check_release(&again);
  }
  plans->force = TIGON_CASE_AUTO;
  planned[c->entry] |= plans->planned;
  return failed;
}

/* A run that passed leaves its bounds to those after it. */
static void leave_limits(check *run, check *oracle) {
  if (run->failure[0] || run->limit_count == 0) return;
  oracle->limits = run->limits, oracle->limit_count = run->limit_count;
  run->limits = NULL, run->limit_count = 0;
}

static bool runs_fail(const check_case *c, tigon_context *context, uint64_t seed, check *oracle, double *worst,
                      check_errors *errors, char failure[512], bool *refused) {
  check first, again;
  context->queue.threads = 2;
  check_run(&first, c, context, seed, 0, oracle, NULL);
  *worst = first.worst;
  *refused = !first.failure[0] && first.status == TIGON_ERROR_UNSUPPORTED;
  if (*refused) return check_release(&first), false;
  leave_limits(&first, oracle);
  if (errors) check_add_errors(errors, &first.errors);
  bool failed = fails(&first, "", failure);
  if (!failed && strcmp(tigon_last_variant(context), context->kernels->variant) != 0) {
    snprintf(failure, 512, "%s ran, %s was asked for", tigon_last_variant(context), context->kernels->variant);
    failed = true;
  }
  const bool any_threads = strstr(tigon_context_gemm(context), "thread_count") != NULL;
  for (int i = 0; i < RERUNS && !failed; ++i) {
    if (reruns[i].threads != 2 && !any_threads) continue;
    context->queue.threads = reruns[i].threads;
    check_run(&again, c, context, seed, reruns[i].place, NULL, NULL);
    if (!again.failure[0]) check_same_bits(&again, &first, reruns[i].what);
    failed = fails(&again, reruns[i].what, failure);
    check_release(&again);
  }
  context->queue.threads = 2;
  if (!failed) failed = forced_fail(c, context, seed, oracle, failure);
  check_release(&first);
  return failed;
}

/* The oracle's run of the case that ran last, with the bounds of its first run on the device, for that case on other variants.
 * One check runs at a time. */
static struct known {
  tigon_context *context;
  check_case c;
  uint64_t seed;
  char device[64];
  check run;
} known;

static bool is_known(const check_case *c, const char *device, uint64_t seed) {
  const check_case *k = &known.c;
  return known.run.count > 0 && k->entry == c->entry && k->dtype == c->dtype && k->shape == c->shape &&
         k->option == c->option && k->fill == c->fill && k->padded == c->padded &&
         memcmp(k->dims, c->dims, sizeof c->dims) == 0 && known.seed == seed && strcmp(known.device, device) == 0;
}

static tigon_status ask_oracle(const check_case *c, const char *device, uint64_t seed) {
  const tigon_context_desc desc = {.device = "ref"};
  if (is_known(c, device, seed)) return TIGON_OK;
  check_release(&known.run);
  const tigon_status status = known.context ? TIGON_OK : tigon_context_create(&desc, &known.context);
  if (status != TIGON_OK) return status;
  known.c = *c, known.seed = seed;
  snprintf(known.device, sizeof known.device, "%s", device);
  check_run(&known.run, c, known.context, seed, 0, NULL, NULL);
  return TIGON_OK;
}

check_outcome check_run_case(const check_case *c, const char *device, const char *variant, const tigon_kernels *kernels,
                             uint64_t seed, double *worst, check_errors *errors, char failure[512]) {
  const tigon_context_desc desc = {.device = device, .variant = variant};
  tigon_context *context = NULL;
  failure[0] = 0;
  *worst = 0;
  check_outcome outcome = CHECK_FAILED;
  bool refused = false;
  if (tigon_context_create(&desc, &context)) {
    snprintf(failure, 512, "%.500s", tigon_last_error(NULL));
  } else {
    if (kernels) context->kernels = kernels;
    if (!(tigon_entry_dtypes(context->kernels, c->entry) & TIGON_BIT(c->dtype)))
      outcome = CHECK_SKIPPED;
    else if (ask_oracle(c, device, seed))
      snprintf(failure, 512, "%.500s", tigon_last_error(NULL));
    else if (!fails(&known.run, "on the oracle", failure) &&
             !runs_fail(c, context, seed, &known.run, worst, errors, failure, &refused))
      outcome = refused ? CHECK_REFUSED : CHECK_PASSED;
  }
  tigon_context_destroy(context);
  return outcome;
}
