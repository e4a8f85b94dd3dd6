/* The parts of `tigon bench`: sizes (of the cases in tests/check), probes (what the memory can do), rows (what was found). */
#ifndef TIGON_BENCH_H
#define TIGON_BENCH_H

#include <stdio.h>

#include "attention_options.h"
#include "check/cases.h"
#include "cli.h"
#include "forms.h"

/* ---- sizes ---- */

/* What the rows of one operator differ in. */
typedef enum bench_axis { BENCH_ONE, BENCH_ROWS, BENCH_WIDTH, BENCH_THREADS, BENCH_MODELS } bench_axis;

typedef struct bench_choice {
  bench_axis axis;
  int64_t rows, cols; /* 0: each case's own shape */
  size_t hot_bytes;   /* > 0: and of that shape so much that the tensors of a case have no more */
  int threads;
  unsigned forms;    /* each case uses those of them that it has */
  const char *model; /* NULL: all of them */
} bench_choice;

enum { BENCH_MOST_POINTS = 16 };
int bench_points(const bench_case *chosen, const bench_choice *choice, tigon_context *context, tigon_dtype dtype,
                 bench_point points[BENCH_MOST_POINTS]);

/* ---- probes: what this machine's memory can do, in GB/s ---- */

enum { BENCH_PROBE_BYTES = 512 << 20 }; /* the largest probe's */

typedef struct bench_probe {
  int threads;
  size_t bytes; /* bytes of one buffer */
  char *from, *to;
  int kind; /* kind of the fastest copy at this size; beyond the caches it has non-temporal stores */
} bench_probe;

/* Probes that move `bytes` in all, or as many as the largest probe has; `hot`: what they write stays in the caches. False:
 * no memory. */
bool bench_probe_open(bench_probe *probe, double bytes, int threads, bool hot);
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
  tigon_model_counts counted;  /* counts of one call, on a simulator */
  int64_t predicted;           /* bytes that the planner said one call moves, beside those counted */
  double host;                 /* seconds of the host's time that a call takes on a device; 0: unknown */
  double speedup;              /* in a sweep over threads: the time on one thread / the median; 0: unknown */
  double disturbed;            /* share of the samples in which another program took a core */
  size_t extra_bytes;          /* workspace */
  int64_t peak_bytes;          /* peak of resident memory while the op ran; 0: unknown */
  enum { BENCH_MEASURED, BENCH_SKIPPED, BENCH_BROKEN } outcome;
  char reason[512]; /* one sentence, unless measured */
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
  const char *simulated; /* the device whose model stands for the clock; NULL: times were measured */
  const char *device;    /* the one that is not this host, and is timed by its own clock; else NULL */
  bool probed;           /* the memory's rates were measured, not only described */
  const char *against;   /* the file of an earlier run; NULL: none */
  int verdicts[BENCH_VERDICTS];
  bool overhead; /* the shapes are tiny: the time is a call's cost */
  bool hot;      /* tensors stay in the caches */
} bench_result;

/* ---- timing ---- */

enum { BENCH_MOST_REPEATS = 1001 };

/* PATIENCE: samples that a row gets however long they take. LEAST_FLOOR: bytes below which starting a call costs more than
 * moving data, so that a floor would say nothing. */
enum { BENCH_PATIENCE = 5, BENCH_LEAST_FLOOR = 256 << 10 };

typedef struct bench_samples {
  double value[BENCH_MOST_REPEATS];
  int count;
} bench_samples;
/* Linear between the two nearest; 0 without samples. Sorts them. */
double bench_quantile(bench_samples *samples, double part);
/* Sets the median and the two quantiles of a row. */
void bench_set_times(bench_row *row, bench_samples *times);

typedef struct bench_timing {
  int repeats;
  double sample_seconds;
  bool overhead; /* the cost of a call: no probes */
  bool hot;      /* the probes' stores stay in the caches, and the smallest calls have probes, too */
} bench_timing;

/* Fills the times, rates and floor of a row whose bytes_min and flops are set; the call is known to work. Samples take
 * about sample_seconds each, with probes between them. */
void bench_measure(const bench_data *data, bench_mode mode, const bench_timing *timing, bench_row *row);
void bench_find_ceilings(bench_result *result, tigon_context *context, int repeats);
/* The same on a device whose backend has `stream`. */
void bench_measure_on_device(const bench_data *data, bench_mode mode, const bench_timing *timing, bench_row *row);
void bench_probe_device(tigon_context *context, int repeats, bench_samples *copies, bench_samples *reads);
/* The rate of a simulated device's memory with all cores at work. */
double bench_model_gbps(const tigon_context *context);

/* ---- an earlier run ---- */

/* The JSON of the file at `path`; ends the program when there is none, or it is no benchmark's or not as hot. Says on stderr
 * when it is another machine's. */
json_t *bench_past_read(const char *command, const char *path, bool hot, const char *device);
/* Fills `past` of the rows that it has, and returns how many those are. */
int bench_past_find(const json_t *past, bench_row *rows, int count);
bench_verdict bench_past_judge(bench_row *row); /* once it is measured */

/* ---- output ---- */

enum { BENCH_SHAPE = 64 + FORMS_TEXT + ATTENTION_TEXT };
char *bench_shape(char shape[BENCH_SHAPE], const bench_row *row); /* "4096x4096, gate" */
void bench_print_changes(const bench_result *result, FILE *file);

typedef enum bench_format { BENCH_TABLE, BENCH_MARKDOWN, BENCH_JSON, BENCH_CSV } bench_format;
/* Results to stdout; a sentence for every row that was not measured to stderr. */
void bench_print(const bench_result *result, bench_format format);
/* Plots with bars from q20 to q80: one an operator over what was swept, or one a unit over the operators. */
void bench_print_svg(const bench_result *result, FILE *file);
void bench_print_csv(const bench_result *result, const tigon_machine *machine);

#endif
