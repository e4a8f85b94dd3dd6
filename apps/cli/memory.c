/* What the system says about the memory of the host and of this process. */
#include <stdio.h>
#include <stdlib.h>

#include "cli.h"

int64_t cli_memory_available(void) {
  char value[64];
  tigon_value_of("/proc/meminfo", "MemAvailable", value, sizeof value); /* in kB, which are KiB */
  return *value ? strtoll(value, NULL, 10) * 1024 : INT64_MAX;
}

static bool peak_restarted;

/* 5: proc(5) on clear_refs. Where that is refused, as in some containers, a peak would be that of an earlier row. */
void cli_peak_restart(void) {
  FILE *file = fopen("/proc/self/clear_refs", "w");
  peak_restarted = file && fputc('5', file) != EOF;
  if (file && fclose(file) != 0) peak_restarted = false;
}

int64_t cli_peak_bytes(void) {
  char value[64];
  tigon_value_of("/proc/self/status", "VmHWM", value, sizeof value);
  return peak_restarted ? strtoll(value, NULL, 10) * 1024 : 0;
}
