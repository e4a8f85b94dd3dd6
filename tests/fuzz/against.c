/* The file of `tigon bench --against`, which is compared with one row, and printed. The program ends where the file is refused; here it
 * jumps back, and its JSON lies in one block of memory that each input begins anew. */
#include <setjmp.h>

#include "cli/bench.h"
#include "fuzz/scratch.h"

enum { ROOM = 1 << 24 };
static char room[ROOM];
static size_t used;
static jmp_buf refused;

static void *take(size_t bytes) {
  bytes = (bytes + 15) / 16 * 16;
  if (bytes > ROOM - used) return NULL;
  return room + (used += bytes) - bytes;
}
static void give(void *memory) { (void)memory; }

void __wrap_cli_say(const char *command, const char *text);
void __wrap_cli_say(const char *command, const char *text) {
  if (!*command || !*text) abort();
}

_Noreturn void __wrap_cli_trouble(const char *command, const char *format, ...);
_Noreturn void __wrap_cli_trouble(const char *command, const char *format, ...) {
  (void)command;
  if (!*format) abort();
  longjmp(refused, 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static FILE *nothing;
  if (!nothing) {
    json_set_alloc_funcs(take, give);
    json_object_seed(1);
    if (!(nothing = fopen("/dev/null", "w"))) abort();
  }
  used = 0;
  const char *path = scratch_put("past.json", data, size);
  if (setjmp(refused)) return 0;
  bench_row row = {.op = "rms_norm", .mode = "fwd", .dtype = TIGON_F32, .median = 1e-3, .q20 = 1e-3, .q80 = 1e-3};
  row.at = (bench_point){.rows = 2, .cols = 8, .threads = 1};
  const json_t *past = bench_past_read("tigon bench", path, false, "npu");
  bench_past_find(past, &row, 1);
  bench_result result = {.rows = &row, .count = 1, .against = path};
  if (bench_past_judge(&row) >= BENCH_VERDICTS) abort();
  bench_print_changes(&result, nothing);
  return 0;
}
