/* Results on the CPU must not depend on what is queried here. So `cores`, from which slabs and splits come, and
 * `sum_columns`, on whose multiples tiles of a reduction begin, are fixed numbers; the L2 size chooses the width of a
 * tile and the case, neither of which may change a bit; the number of CPUs enters the predicted time alone. */
#include "plan/device_cpu.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Tasks and slabs of a call. 32 feed 1, 2, 4, 8, 16 and 32 threads evenly and more than saturate the memory of any CPU
 * socket of today; 32 slabs of dw cost 1 % of the traffic of rms_norm backward at 2048 rows. */
#define CPU_TASKS 32

/* The block of columns by which a kernel may sum: 4 KiB of f32, wide enough for any vector unit. */
#define CPU_SUM_COLUMNS 1024

/* L2 bytes when neither /sys nor sysconf() tells: the smallest of the server and desktop cores in use (256 KiB). */
#define CPU_DEFAULT_L2 (256 * 1024)

int64_t tigon_cpu_parse_size(const char *text) {
  char *end;
  const long long number = strtoll(text, &end, 10);
  int64_t unit = 1;
  if (*end == 'K') unit = 1024;
  if (*end == 'M') unit = 1024 * 1024;
  if (unit > 1) end++;
  if (end == text || number <= 0 || number > INT64_MAX / unit || (*end != '\0' && *end != '\n')) return 0;
  return number * unit;
}

int64_t tigon_cpu_parse_list(const char *text) {
  int64_t count = 0;
  while (*text >= '0' && *text <= '9') {
    char *end;
    const long first = strtol(text, &end, 10);
    long last = first;
    if (*end == '-') last = strtol(end + 1, &end, 10);
    if (last < first || last == LONG_MAX) return 0;
    count += last - first + 1;
    if (*end != ',') return *end == '\0' || *end == '\n' ? count : 0;
    text = end + 1;
  }
  return 0;
}

/* The text of /sys/devices/system/cpu/cpu0/cache/index<index>/<file>; "" when it cannot be read. */
static void read_cache_file(int index, const char *file, char *text, size_t size) {
  char path[96];
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, file);
  text[0] = '\0';
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  const ssize_t got = read(fd, text, size - 1);
  text[got > 0 ? got : 0] = '\0';
  close(fd);
}

/* Bytes of L2 for one CPU: the cache's, divided by the CPUs that share it. 0 when /sys does not tell. */
static int64_t l2_from_sys(void) {
  for (int index = 0; index < 8; index++) {
    char level[16], type[32], size[32], sharers[256];
    read_cache_file(index, "level", level, sizeof level);
    read_cache_file(index, "type", type, sizeof type);
    if (atoi(level) != 2 || strncmp(type, "Instruction", 11) == 0) continue;
    read_cache_file(index, "size", size, sizeof size);
    read_cache_file(index, "shared_cpu_list", sharers, sizeof sharers);
    const int64_t bytes = tigon_cpu_parse_size(size), cpus = tigon_cpu_parse_list(sharers);
    if (bytes > 0) return bytes / (cpus > 0 ? cpus : 1);
  }
  return 0;
}

static int64_t l2_from_sysconf(void) {
#ifdef _SC_LEVEL2_CACHE_SIZE
  return sysconf(_SC_LEVEL2_CACHE_SIZE);
#else
  return 0;
#endif
}

void tigon_device_desc_query_cpu(tigon_device_desc *desc) {
  int64_t l2 = l2_from_sys();
  if (l2 <= 0) l2 = l2_from_sysconf();
  if (l2 <= 0) l2 = CPU_DEFAULT_L2;
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  *desc = (tigon_device_desc){
      .name = "cpu",
      .onchip_bytes = l2,
      .cores = CPU_TASKS,
      .workers = online < 1           ? 1
                 : online > CPU_TASKS ? CPU_TASKS
                                      : online,
      .grid_limit = INT32_MAX,
      .launch = TIGON_LAUNCH_PERSISTENT,
      .onchip_alignment = 64,
      .memory_alignment = 64,
      .transfer_bytes = 4096, /* the hardware prefetcher stops at a page */
      .vector_bytes = 64,
      .sum_columns = CPU_SUM_COLUMNS,
      .buffers = 1, /* a cache needs no second buffer to overlap */
      /* Copy with non-temporal stores on 1 and 2 threads of a Xeon, GB/s; level from there. */
      .bandwidth = {{1, 20.8}, {2, 19.45}},
      .cached_gbps = 52,  /* copy from L2 there */
      .vector_gops = 102, /* f32 FMA there: 205 GF/s */
      .launch_us = 3.0,   /* an OpenMP region */
      .start_us_per_core = 0.5,
      .tile_us = 0.05,
  };
}
