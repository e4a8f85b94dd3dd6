/* What the system says about the host. */
#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "core/machine.h"
#include "core/text.h"

/* Did a file, which may be there, not open for want of memory? */
static _Thread_local bool lacked;

static FILE *open_to_read(const char *path) {
  FILE *file = fopen(path, "r");
  lacked |= !file && errno == ENOMEM;
  return file;
}

void tigon_value_of(const char *path, const char *key, char *value, size_t size) {
  char line[4096];
  value[0] = 0;
  FILE *file = open_to_read(path);
  while (file && fgets(line, sizeof line, file)) {
    const size_t length = strlen(key);
    if (strncmp(line, key, length) != 0) continue;
    const char *colon = line + length + strspn(line + length, " \t");
    if (*colon != ':') continue;
    colon += 1 + strspn(colon + 1, " \t");
    snprintf(value, size, "%.*s", (int)strcspn(colon, "\n"), colon);
    break;
  }
  if (file) fclose(file);
}

static void cpuinfo(const char *key, char *value, size_t size) { tigon_value_of("/proc/cpuinfo", key, value, size); }

/* Bytes of the data or unified cache of a level of core 0, from sysfs ("48K"), as musl and Arm have no sysconf for it. */
static int64_t cache_bytes(int level) {
  for (int index = 0; index < 8; ++index) {
    char path[96], text[32] = "", type[32] = "";
    const char *const names[] = {"level", "type", "size"};
    char *const values[] = {text, type, text};
    for (int i = 0;; ++i) { /* to the size, or to what says that it is another cache */
      snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, names[i]);
      FILE *file = open_to_read(path);
      if (!file) return 0;
      const bool read = fgets(values[i], 32, file) != NULL;
      fclose(file);
      if (!read || (i == 0 && atoi(text) != level) || (i == 1 && strncmp(type, "Instruction", 11) == 0)) break;
      if (i == 2) return strtoll(text, NULL, 10) * (strchr(text, 'M') ? 1 << 20 : 1 << 10);
    }
  }
  return 0;
}

void tigon_machine_read(tigon_machine *machine) {
  static const char *const wanted[] = {
      "sse4_2",   "avx",         "avx2",     "fma",         "f16c",        "avx512f",  "avx512bw", "avx512dq",
      "avx512vl", "avx512_vnni", "avx_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8",
      "asimd",    "asimdhp",     "fphp",     "bf16",        "sve",         "sve2",     "sme",
  };
  char flags[4096];
  struct utsname system;
  memset(machine, 0, sizeof *machine);
  lacked = false;
  cpuinfo("model name", machine->model, sizeof machine->model);
  if (!machine->model[0] && uname(&system) == 0)
    snprintf(machine->model, sizeof machine->model, "%.100s processor", system.machine);

  cpu_set_t allowed;
  machine->cores =
      sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : (int)sysconf(_SC_NPROCESSORS_ONLN);
  machine->l1d_bytes = cache_bytes(1);
  machine->l2_bytes = cache_bytes(2);
  machine->l3_bytes = cache_bytes(3);

  flags[0] = ' ';
  cpuinfo("flags", flags + 1, sizeof flags - 2);
  if (!flags[1]) cpuinfo("Features", flags + 1, sizeof flags - 2);
  strcat(flags, " ");
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; ++i) {
    char word[32];
    snprintf(word, sizeof word, " %s ", wanted[i]);
    if (strstr(flags, word))
      tigon_append(machine->features, sizeof machine->features, "%s%s", *machine->features ? " " : "", wanted[i]);
  }
  machine->lacked_memory = lacked;
}
