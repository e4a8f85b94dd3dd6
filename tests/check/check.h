/* The check: every kernel of every variant against the oracle. An op's file in this folder says how a case is called, and how
 * far a result may be from the oracle's. The harness runs the case on the oracle. Then it runs it on the variant under test with
 * 1, 2, 3 and 8 threads, and in every case of a planner. It compares results, bits, guard zones, inputs and the caller's state.
 *
 * The run function of an op is called once per run and must do the same each time: make its tensors, call the op with
 * check_call(), and bound its outputs. What it makes is released afterwards. `tigon bench` times the same calls: cases.h. */
#ifndef TIGON_CHECK_H
#define TIGON_CHECK_H

#include <stdbool.h>
#include <tigon/tigon.h>

#include "backend.h"

enum { CHECK_DIMS = 6 };

/* What is in an input. */
typedef enum check_fill {
  CHECK_UNIFORM,  /* [-2, 2) */
  CHECK_CONSTANT, /* every row one value */
  CHECK_OUTLIER,  /* uniform, one element of a row is 10^4 */
  CHECK_DENORMAL, /* around the smallest normal number of the dtype */
  CHECK_SPECIAL,  /* uniform; rows 1, 2, 3 of every four hold a NaN, an Inf, a -Inf */
  CHECK_HEAVY,    /* a heavy tail: beyond v with probability 1 / (1 + v)^2, at most 10^4 */
  CHECK_CANCEL,   /* neighbours that cancel but for 2^-8 of them */
  CHECK_FILLS,
  CHECK_SHIFTED = CHECK_FILLS, /* [9998, 10002): for an op that subtracts; not walked, its run() asks for it */
  CHECK_DERIVED,               /* run() works it out from other inputs; not walked */
} check_fill;

/* Which end of a buffer touches a protected page. STRANGE is END with strides of extents of 1 that nobody may use. */
typedef enum check_place { CHECK_END, CHECK_START, CHECK_STRANGE } check_place;

typedef struct check check;
typedef struct check_limit check_limit;
typedef struct check_timed check_timed; /* what a case that is timed keeps: check/cases.h */
typedef struct check_twist check_twist;

/* How far an output was from the oracle's at most. */
typedef struct check_error {
  const char *output;
  double
      ulp; /* the largest error in units of the output's dtype, where the terms of a sum did not cancel to below an eighth of them */
  double share;        /* the largest error as a share of the bound */
  double ulps, factor; /* the bound's, the largest */
  int64_t elements;    /* compared */
  int64_t other;       /* how many of these are not the oracle's rounded value */
} check_error;
enum { CHECK_ERRORS = 24 };
typedef struct check_errors {
  int count;
  check_error of[CHECK_ERRORS];
} check_errors;

/* A kernel made wrong on purpose, in one way that a bug could; the check must notice it (`tigon check --mutants`). apply()
 * puts it into a copy of the variant's table. */
typedef struct check_mutant {
  const char *what;
  void (*apply)(tigon_kernels *kernels);
} check_mutant;
extern tigon_kernels check_real_kernels; /* as they were before the last apply(). One check runs at a time */

/* MUTANT(name, slot, change): a slot that runs the true kernel on the problem m after `change`. */
#define MUTANT(name, slot, change)                                                      \
  static tigon_status run_##name(tigon_queue *queue, const tigon_##slot##_problem *p) { \
    tigon_##slot##_problem m = *p;                                                      \
    change;                                                                             \
    return check_real_kernels.slot.run(queue, &m);                                      \
  }                                                                                     \
  static void name(tigon_kernels *kernels) {                                            \
    check_real_kernels = *kernels;                                                      \
    kernels->slot.run = run_##name;                                                     \
  }
/* Changes that several ops' mutants make: no last row; on many threads, which then share a wide row, no last part of it. */
void check_drop_last_row(tigon_row_space *space);
int64_t check_without_last_part(const tigon_queue *queue, int64_t cols);

/* The sizes that sweeps run an op on. */
typedef enum check_size {
  CHECK_SMALL,  /* a vector and a tail where the op has rows */
  CHECK_MEDIUM, /* work for several threads */
  CHECK_BATCH,  /* 300 of what the op takes one by one: rows, batches, tokens */
  CHECK_FAR,    /* three of them */
  CHECK_HUGE,   /* so many that there are more than 2^31 elements */
  CHECK_WIDE,   /* three of them, with as many */
  CHECK_SIZES,
} check_size;
enum { CHECK_WALKS = 3, CHECK_N = -1 /* the walk's number */, CHECK_2N = -2 /* twice that */ };
/* 4096 columns in so many rows, or three rows of so many, are beyond 2^31 elements. */
enum { CHECK_MANY = (1 << 19) + 128, CHECK_THIRD = 3 << 28 };
typedef struct check_sizes {
  int64_t of[CHECK_SIZES][CHECK_DIMS];    /* by check_size; 0: the op has none */
  int64_t walks[CHECK_WALKS][CHECK_DIMS]; /* ways in which the dimensions follow a number */
  unsigned coupled; /* a bit for every option whose rows share something: a denominator, a count, a table of labels */
  double large; /* what f32 and bf16 inputs may hold anywhere: its square, and the sum of some, are finite. 0: 2^60 */
} check_sizes;

/* How one entry of ops.def is checked: the object tigon_check_<op>_<entry>. */
typedef struct check_op {
  void (*run)(check *k);
  /* The index-th shape into dims, whose meaning is the op's own; false past the last one. `tile` is the variant's. */
  bool (*shape)(int index, int64_t tile, int64_t dims[CHECK_DIMS]);
  int options;                    /* run() sees k->option in [0, options) */
  bool uses_fill;                 /* run() passes k->fill to an input */
  const check_mutant *mutants;    /* the last one is {0}; NULL: none */
  const struct bench_case *timed; /* what `tigon bench` times: cases.h */
  const check_sizes *sizes;       /* sizes of sweeps. NULL: [rows, columns] */
} check_op;

#define TIGON_SLOT(op, entry) extern const check_op tigon_check_##op##_##entry;
#define TIGON_COMPOSITE(op, entry) TIGON_SLOT(op, entry)
#include "ops.def"
#undef TIGON_SLOT
#undef TIGON_COMPOSITE

const check_op *check_op_at(int entry);

/* One run of one case. Run functions read the fields above the line. */
struct check {
  tigon_context *context;
  tigon_dtype dtype;
  int64_t dims[CHECK_DIMS];
  int option;
  check_fill fill;
  int alike;           /* the next tensor is padded like the one made so many before it; 0: like none */
  const check *oracle; /* NULL where no bounds are needed: in the oracle's run, a timed one, or where they are known */
  check_timed *timed;  /* NULL, or the run ends at its call */
  const struct bench_point *point; /* the size of a timed case, for what dims do not say; NULL elsewhere */
  /* ---- the harness's own ---- */
  int entry;   /* in ops.def */
  bool padded; /* rows have a longer pitch, each tensor's another one; bases are shifted by one element */
  uint64_t seed;
  struct check_buffer *buffers;
  int count;
  check_place place;
  double worst; /* largest error / bound */
  check_errors errors;
  char failure[512];
  const check_twist *twist; /* what a sweep makes different; NULL: nothing */
  tigon_status status;      /* status of the call */
  int64_t other_kind;       /* elements that are a NaN for an Inf, or the reverse, in a sweep that planted a value */
  unsigned float_state;     /* the caller's float state, before the call */
  const check *expected;    /* the oracle's run, where bounds are known, too; NULL: the run is not compared with it */
  check_limit *limits;      /* bounds that the run worked out; the oracle's: those of its first run on the device */
  int limit_count;
};

/* [rows, cols] shapes around the variant's tile, primes, powers of two and their neighbours, and wide rows. */
enum { CHECK_ROW_SHAPES = 26 };
bool check_row_shapes(int index, int64_t tile, int64_t dims[CHECK_DIMS]);

/* Tensors. Rows (all but the last dimension) are padded in padded cases unless `dense`. */
tigon_tensor check_in(check *k, const char *name, tigon_dtype dtype, int ndim, const int64_t *shape, check_fill fill);
tigon_tensor check_in_dense(check *k, const char *name, tigon_dtype dtype, int ndim, const int64_t *shape,
                            check_fill fill);
/* Indices, each in [low, high). */
tigon_tensor check_indices(check *k, const char *name, tigon_dtype dtype, int ndim, const int64_t *shape, int64_t low,
                           int64_t high);
/* Outputs hold rubbish before the call; those of check_inout hold values (accumulation, in place). */
tigon_tensor check_out(check *k, const char *name, tigon_dtype dtype, int ndim, const int64_t *shape);
tigon_tensor check_out_dense(check *k, const char *name, tigon_dtype dtype, int ndim, const int64_t *shape);
tigon_tensor check_inout(check *k, const char *name, tigon_dtype dtype, int ndim, const int64_t *shape,
                         check_fill fill);
tigon_tensor check_inout_dense(check *k, const char *name, tigon_dtype dtype, int ndim, const int64_t *shape,
                               check_fill fill);
/* An input of the call's dtype whose values are uniform in [-2 factor, 2 factor]; timed ones are in [-factor, factor]. */
tigon_tensor check_in_scaled(check *k, const char *name, int ndim, const int64_t *shape, double factor);
/* What run() takes long to derive from other inputs: the which-th such tensor of a case. recall() is true where it need not. Then
 * the case is timed, or no bounds are needed and the tensor has the values that an earlier run left. */
bool check_recall(const check *k, const tigon_tensor *t, int which);
void check_remember(const check *k, const tigon_tensor *t, int which);
/* Takes the absolute values of an f32 vector that the run has made. */
void check_make_positive(check *k, const tigon_tensor *vector);
/* A word for the op's error, 0. */
tigon_tensor check_error_flag(check *k);
/* 1-dimensional shorthands. */
tigon_tensor check_in_vector(check *k, const char *name, tigon_dtype dtype, int64_t n, check_fill fill);
tigon_tensor check_out_vector(check *k, const char *name, tigon_dtype dtype, int64_t n);
/* Tensors that depend on options. A vector that may be absent. A vector of sums, which replace its values or are added to them.
 * An input [rows, cols] of the case's dtype that the op may overwrite. */
tigon_tensor check_may_vector(check *k, const char *name, tigon_dtype dtype, int64_t n, check_fill fill, bool present);
tigon_tensor check_sum_vector(check *k, const char *name, tigon_dtype dtype, int64_t n, bool present, bool accumulate);
tigon_tensor check_rows(check *k, const char *name, check_fill fill, bool overwritten);
static inline tigon_dtype check_dtype(const check *k, bool f32) { return f32 ? TIGON_F32 : k->dtype; }
/* 64-byte aligned, full of NaN, ending at a protected page. */
void *check_workspace(check *k, size_t bytes);
/* Zeroed doubles for magnitudes; NULL when the case is timed. */
double *check_doubles(check *k, int64_t count);
/* Zeroed memory for what arguments point at, such as a list of tensors. */
void *check_list(check *k, const char *name, size_t bytes);
/* The op needs no more than so many rows of an input [rows, cols]; which they are depends on indices. */
void check_reads_rows(check *k, const tigon_tensor *t, int64_t rows);

/* Element `index` (in row-major order of the shape) of a tensor, whatever its strides. */
double check_value(const tigon_tensor *tensor, int64_t index);
/* The same of an input that the run has made; a timed one lies in the device's memory. */
double check_input(const check *k, const tigon_tensor *tensor, int64_t index);

/* The op's call: `check_call(k, &args)`. Fails the case when it is not OK. A timed case keeps the arguments, and is called
 * later. */
#define check_call(k, args) check_make_call(k, args, sizeof *(args))
void check_make_call(check *k, const void *args, size_t bytes);
/* The same with the workspace that `query` asks for. */
#define check_call_in_workspace(k, query, args)         \
  (query((k)->context, args, &(args)->workspace_bytes), \
   (args)->workspace = check_workspace(k, (args)->workspace_bytes), check_call(k, args))

/* The output must be within
 *   ulps * ulp(expected) + factor * 2^-24 * magnitude[i] + the dtype's smallest denormal
 * of the oracle's, element by element; NaN and Inf must be the oracle's. ulp() is of the output's dtype; magnitude may be
 * NULL. Outputs that are never bounded must equal the oracle's exactly. */
void check_bound(check *k, const tigon_tensor *out, double ulps, double factor, const double *magnitude);
/* The same, and `relative` * 2^-24 of the expected value itself. */
void check_bound_relative(check *k, const tigon_tensor *out, double ulps, double factor, const double *magnitude,
                          double relative);

/* What bounds allow on a device whose own exp, ln, sqrt and division may be off (tigon_precision); elsewhere 0. In units of
 * 2^-24 of a result that `functions` calls of exp, ln or sqrt and `divisions` go into: an ulp is 2 of them at most. A call counts
 * as much as its relative error does in the result: half under a root. */
double check_calls(const check *k, double functions, double divisions);
/* The relative error of what kernels work out in f64, or where they have none in two floats: sums, products, exp and log. */
double check_wide(const check *k);
/* Do kernels have f64? */
bool check_has_f64(const check *k);
/* Is a product rounded with the sum that it goes into? */
bool check_has_fma(const check *k);
/* In units of 2^-24: what a factor below 2^-126 that became 0 takes away where the other factors are 1. */
double check_flushed(const check *k);

/* ---- the harness, for `tigon check` ---- */

typedef struct check_case {
  int entry; /* index in ops.def */
  tigon_dtype dtype;
  int shape, option;
  int64_t dims[CHECK_DIMS];
  check_fill fill;
  bool padded;
} check_case;

/* "fwd/3x4097/o2/outlier/padded" */
void check_case_label(const check_case *c, char label[128]);

/* SKIPPED: there is no kernel for any case of the entry. REFUSED: none for the case's options, and nothing was written. */
typedef enum check_outcome { CHECK_PASSED, CHECK_FAILED, CHECK_SKIPPED, CHECK_REFUSED } check_outcome;

/* Runs a case on the oracle and on `kernels` of the device (NULL: the context's own). `failure` gets the sentence; the
 * errors are added to `errors`, which may be NULL. */
check_outcome check_run_case(const check_case *c, const char *device, const char *variant, const tigon_kernels *kernels,
                             uint64_t seed, double *worst, check_errors *errors, char failure[512]);

/* Adds the bits of a case's outputs to *sum. On an error it is false, and `failure` gets the sentence. */
bool check_digest_case(const check_case *c, tigon_context *context, uint64_t seed, uint64_t *sum, char failure[512]);
/* The next number of a sequence of tensors: elements in the order of indices, without the gaps of strides, a NaN of a float dtype
 * as one word. */
uint64_t check_digest_tensor(uint64_t sum, const tigon_tensor *t);

/* The planner's cases that an entry's runs have had so far, TIGON_CASE_BIT or-ed. */
unsigned check_planned(int entry);

/* The index-th case of an entry for a dtype; false past the last one. */
bool check_case_at(int entry, tigon_dtype dtype, int64_t tile, int index, check_case *c);

/* The index-th mutant of an entry; NULL past the last one. */
const check_mutant *check_mutant_at(int entry, int index);

#endif
