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

void bench_print_csv(const bench_result *result, const cli_machine *machine) {
  const int version = tigon_version();
  char config[256], stamp[32];
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
             "{\"dtype\": \"%s\", \"rows\": %" PRId64 ", \"columns\": %" PRId64
             ", \"threads\": %d, \"variant\": \"%s\", \"bytes_min\": %.0f}",
             tigon_dtype_name(row->dtype), row->rows, row->cols, row->threads, row->variant, row->bytes_min);
    printf("%s,tigon,%s,speed,ms,rows,rows,%" PRId64 ",%.6g,%.6g,%.6g,", row->op, operation(row->mode), row->rows,
           row->median * 1e3, row->q20 * 1e3, row->q80 * 1e3);
    quoted(config);
    putchar(',');
    quoted(machine->model);
    printf(",%s,%d.%d.%d\n", stamp, version / 10000, version / 100 % 100, version % 100);
  }
}
