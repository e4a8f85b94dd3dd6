/* What `tigon bench` found, in the column layout of Liger-Kernel's benchmark data. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "bench.h"

/* A field in quotes, as RFC 4180 has it. */
static void quoted(const char *text) {
  putchar('"');
  for (; *text; ++text) {
    if (*text == '"') putchar('"');
    putchar(*text);
  }
  putchar('"');
}

static const char *operation(const char *mode) {
  return strcmp(mode, "fwd") == 0 ? "forward" : strcmp(mode, "bwd") == 0 ? "backward" : mode;
}

typedef struct metric {
  const char *name, *unit;
  double median, q20, q80;
} metric;

/* Everything of a line but its metric is the same for speed and memory. */
static void print_line(const bench_row *row, bench_axis axis, const metric *m, const char *config, const char *machine,
                       const char *stamp) {
  static const char *const names[][2] = {
      [BENCH_ONE] = {"rows", "rows"},
      [BENCH_ROWS] = {"rows", "rows"},
      [BENCH_WIDTH] = {"columns", "columns"},
      [BENCH_THREADS] = {"threads", "threads"},
      [BENCH_MODELS] = {"model_config", "model"},
  };
  const int version = tigon_version();
  printf("%s,tigon,%s,%s,%s,%s,%s,", row->op, operation(row->mode), m->name, m->unit, names[axis][0], names[axis][1]);
  if (axis == BENCH_MODELS)
    printf("%s", row->at.model);
  else
    printf("%" PRId64, axis == BENCH_THREADS ? row->at.threads : axis == BENCH_WIDTH ? row->at.cols : row->at.rows);
  printf(",%.6g,%.6g,%.6g,", m->median, m->q20, m->q80);
  quoted(config);
  putchar(',');
  quoted(machine);
  printf(",%s,%d.%d.%d\n", stamp, version / 10000, version / 100 % 100, version % 100);
}

void bench_print_csv(const bench_result *result, const tigon_machine *machine) {
  char config[256 + BENCH_SHAPE], shape[BENCH_SHAPE], stamp[32];
  const char *name = result->device ? result->device : machine->model;
  const time_t now = time(NULL);
  struct tm utc;
  gmtime_r(&now, &utc);
  strftime(stamp, sizeof stamp, "%Y-%m-%d %H:%M:%S", &utc);
  puts("kernel_name,kernel_provider,kernel_operation_mode,metric_name,metric_unit,x_name,x_label,x_value,y_value_50,"
       "y_value_20,y_value_80,extra_benchmark_config_str,gpu_name,timestamp,version");
  for (int i = 0; i < result->count; ++i) {
    const bench_row *row = &result->rows[i];
    if (row->outcome != BENCH_MEASURED) continue;
    snprintf(config, sizeof config,
             "{\"dtype\": \"%s\", \"shape\": \"%s\", \"rows\": %" PRId64 ", \"columns\": %" PRId64
             ", \"other\": %" PRId64 ", \"threads\": %d, \"variant\": \"%s\", \"bytes_min\": %.0f, \"hot\": %s}",
             tigon_dtype_name(row->dtype), bench_shape(shape, row), row->at.rows, row->at.cols, row->at.other,
             row->at.threads, row->variant, row->bytes_min, result->hot ? "true" : "false");
    const metric speed = {"speed", "ms", row->median * 1e3, row->q20 * 1e3, row->q80 * 1e3};
    print_line(row, result->axis, &speed, config, name, stamp);
    const double peak = (double)row->peak_bytes / (1 << 20);
    const metric memory = {"memory", "MB", peak, peak, peak};
    if (row->peak_bytes) print_line(row, result->axis, &memory, config, name, stamp);
  }
}
