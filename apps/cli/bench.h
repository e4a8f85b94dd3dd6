/* The parts of `tigon bench`: cases (what is called), probes (what the memory can do), rows (what was found). */
#ifndef TIGON_BENCH_H
#define TIGON_BENCH_H

#include <stdio.h>

#include "cli.h"

/* ---- cases: one function an op, which builds the arguments through the public API ---- */

typedef enum bench_mode { BENCH_FWD, BENCH_BWD, BENCH_FULL, BENCH_STEP, BENCH_CLIP, BENCH_MODES } bench_mode;
const char *bench_mode_name(bench_mode mode);

enum { BENCH_TENSORS = 8, BENCH_VECTORS = 3 };

/* The memory that a case works on: one set of buffers for all modes of a case. */
typedef struct bench_data {
  tigon_context *context;
  tigon_dtype dtype;
  int64_t rows, cols;
  int64_t other;               /* the third size: N of linear, the words of a head or a table; 0 when the op has none */
  int64_t head_dim, kv_heads;  /* 0: as heads() chooses */
  void *tensor[BENCH_TENSORS]; /* each holds the largest tensor of the case; random numbers in (-1, 1) */
  float *column[BENCH_VECTORS]; /* [max(cols, other)] */
  float *row[BENCH_VECTORS];    /* [rows * (cols / 64 + 1)] */
  int64_t *index;               /* [rows] in [0, other or cols) */
  void *workspace;
  size_t workspace_bytes;
  /* What prepare() found out, for each mode: bytes that must move, operations of the matrix products (0: the op is bound
   * by memory), and whether it only reads tensors (then the floor is the read rate). All zero: no such mode. */
  double bytes[BENCH_MODES], flops[BENCH_MODES];
  bool reads_only[BENCH_MODES];
  size_t workspace_need;
} bench_data;

enum { BENCH_AS_ROWS = -1, BENCH_AS_COLS = -2 };      /* values of bench_case.other */
enum { BENCH_FULL_IN_ONE = 1, BENCH_F32_INSIDE = 2 }; /* bits of bench_case.flags */

typedef struct bench_case {
  const char *op;
  const char *shape_note;       /* what ROWSxCOLS is, where that is not plain */
  int64_t rows_f32, rows_16bit; /* default shape: tensors of 64 MiB and more for the ops that memory bounds */
  int64_t cols;
  int64_t other; /* the third size: 0 none, BENCH_AS_ROWS, BENCH_AS_COLS, or a number */
  int tensors;   /* buffers used */
  int flags;     /* full is one call and not fwd, then bwd; some tensors are f32 in any dtype */
  tigon_status (*prepare)(bench_data *data); /* fills bytes, flops, reads_only and workspace_need */
  tigon_status (*run)(bench_data *data, bench_mode mode);
} bench_case;

/* The case of `op`; NULL when there is none. */
const bench_case *bench_case_find(const char *op);
/* One call of a mode: "full" is forward, then backward, unless one call does both. */
tigon_status bench_call(const bench_case *chosen, bench_data *data, bench_mode mode);

/* ---- sizes ---- */

/* What the rows of one operator differ in. */
typedef enum bench_axis { BENCH_ONE, BENCH_ROWS, BENCH_WIDTH, BENCH_THREADS, BENCH_MODELS } bench_axis;

typedef struct bench_choice {
  bench_axis axis;
  int64_t rows, cols; /* 0: each case's own shape */
  int threads;
  const char *model; /* NULL: all of them */
} bench_choice;

typedef struct bench_point {
  int64_t rows, cols, other, head_dim, kv_heads; /* as in bench_data */
  int threads;
  const char *model; /* NULL: no model's */
} bench_point;

enum { BENCH_MOST_POINTS = 16 };
int bench_points(const bench_case *chosen, const bench_choice *choice, tigon_dtype dtype,
                 bench_point points[BENCH_MOST_POINTS]);
const char *const *bench_model_names(void); /* NULL-terminated */

/* ---- the cases that matrix products bound ---- */

tigon_status bench_linear_prepare(bench_data *data);
tigon_status bench_linear_run(bench_data *data, bench_mode mode);
tigon_status bench_head_prepare(bench_data *data);
tigon_status bench_head_run(bench_data *data, bench_mode mode);
tigon_status bench_attention_prepare(bench_data *data);
tigon_status bench_attention_run(bench_data *data, bench_mode mode);

/* ---- memory for the cases ---- */

/* Bytes that bench_data_open() takes. */
size_t bench_data_bytes(const bench_data *data, const bench_case *chosen);
/* Makes tensor .. index for `chosen`; context, dtype, rows, cols and other are set. On an error nothing is left. */
tigon_status bench_data_open(bench_data *data, const bench_case *chosen);
/* Makes the workspace that prepare() asked for. */
tigon_status bench_data_grant(bench_data *data);
void bench_data_close(bench_data *data);

/* ---- probes: what this machine's memory can do, in GB/s ---- */

enum { BENCH_PROBE_BYTES = 512 << 20 }; /* the largest probe's */

typedef struct bench_probe {
  int threads;
  size_t bytes; /* of one buffer */
  char *from, *to;
  bool streaming; /* non-temporal stores are the faster ones at this size */
} bench_probe;

/* Probes that move `bytes` in all, or as many as the largest probe has. False: no memory. */
bool bench_probe_open(bench_probe *probe, double bytes, int threads);
void bench_probe_close(bench_probe *probe);
double bench_probe_copy(const bench_probe *probe, double seconds); /* one sample of about `seconds` */
double bench_probe_read(const bench_probe *probe, double seconds);

double bench_now(void); /* seconds, monotonic */

/* ---- rows ---- */

/* SLOWER and FASTER: the intervals q20 to q80 lie apart, and the share of the floor (the median where there is no floor)
 * changed by more than 5 %. */
typedef enum bench_verdict { BENCH_UNKNOWN, BENCH_SAME, BENCH_SLOWER, BENCH_FASTER, BENCH_VERDICTS } bench_verdict;
const char *bench_verdict_name(bench_verdict verdict);

typedef struct bench_past {
  bench_verdict verdict;
  double median, q20, q80; /* seconds */
  double floor_fraction;   /* 0: no floor */
  double change;           /* 0.1: a tenth slower, as a share of the floor where both have one */
} bench_past;

typedef struct bench_row {
  const char *op, *mode, *variant;
  tigon_dtype dtype;
  bench_point at;
  double median, q20, q80; /* seconds */
  double bytes_min, flops;
  double copy_gbps, read_gbps; /* medians of the probes that ran between this row's samples; 0: not measured */
  double floor_fraction;       /* the floor's time / median; 0: no floor */
  double disturbed;            /* share of the samples in which another program took a core */
  size_t extra_bytes;          /* workspace */
  int64_t peak_bytes;          /* of resident memory, while the op ran; 0: unknown */
  enum { BENCH_MEASURED, BENCH_SKIPPED, BENCH_BROKEN } outcome;
  char reason[256]; /* one sentence, unless measured */
  bench_past past;
} bench_row;

typedef struct bench_result {
  bench_row *rows;
  int count;
  bench_axis axis;
  double copy_gbps, read_gbps; /* the machine's, beyond its caches */
  int threads;
  double load; /* processes that waited or ran in the minute before, as the system counts them; < 0: unknown */
  const char *variant, *gemm;
  const char *against; /* the file of an earlier run; NULL: none */
  int verdicts[BENCH_VERDICTS];
  bool overhead; /* the shapes are tiny: the time is a call's cost */
} bench_result;

/* ---- timing ---- */

enum { BENCH_MOST_REPEATS = 1001 };

/* Fills the times, rates and floor of a row whose bytes_min and flops are set; the call is known to work. Samples take
 * about sample_seconds each; with_floor runs the probes between them. */
void bench_measure(const bench_case *chosen, bench_data *data, bench_mode mode, int repeats, double sample_seconds,
                   bool with_floor, bench_row *row);
void bench_find_ceilings(bench_result *result, int repeats);

/* ---- an earlier run ---- */

/* The JSON of the file at `path`; ends the program when there is none or it is no benchmark's. Says on stderr when it is
 * another machine's. */
json_t *bench_past_read(const char *command, const char *path);
/* Fills `past` of the rows that it has, and returns how many those are. */
int bench_past_find(const json_t *past, bench_row *rows, int count);
bench_verdict bench_past_judge(bench_row *row); /* once it is measured */

/* ---- output ---- */

enum { BENCH_SHAPE = 48 };
char *bench_shape(char shape[BENCH_SHAPE], const bench_row *row); /* "4096x4096" */
void bench_print_changes(const bench_result *result, FILE *file);

typedef enum bench_format { BENCH_TABLE, BENCH_MARKDOWN, BENCH_JSON, BENCH_CSV } bench_format;
/* Results to stdout; a sentence for every row that was not measured to stderr. */
void bench_print(const bench_result *result, bench_format format);
/* Plots with bars from q20 to q80: one an operator over what was swept, or one a unit over the operators. */
void bench_print_svg(const bench_result *result, FILE *file);
void bench_print_csv(const bench_result *result, const cli_machine *machine);

#endif
