/* A program of the first ABI that is promised: first.sh builds it against the headers of that time and runs it with today's library.
 * entries.def has the calls that those headers declare. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <tigon/tigon.h>

static int failed;
#define EXPECT(condition, ...) \
  if (!(condition)) failed = 1, printf(__VA_ARGS__), puts("")

typedef tigon_status entry_call(tigon_context *, const void *);

static const tigon_schema *schema_of(const char *name) {
  const tigon_schema *schema;
  for (int i = 0; (schema = tigon_schema_at(i)); ++i)
    if (strcmp(schema->name, name) == 0) return schema;
  return NULL;
}

/* All zero, and ending where no memory follows: a library that reads more than the program has stops it. */
static void refuse(tigon_context *context, const char *name, entry_call *call, size_t bytes) {
  enum { PAGE = 4096, PAGES = 2 };
  char *memory = mmap(NULL, PAGE * (PAGES + 1), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory + PAGE * PAGES, PAGE, PROT_NONE) != 0) exit(1);
  const tigon_schema *schema = schema_of(name);
  EXPECT(schema && schema->bytes == bytes, "%s: the struct has %zu bytes, must have %zu", name,
         schema ? schema->bytes : 0, bytes);
  const tigon_status status = call(context, memory + PAGE * PAGES - bytes);
  const char *sentence = tigon_last_error(context);
  EXPECT(status == TIGON_ERROR_INVALID && strncmp(sentence, name, strlen(name)) == 0, "%s: status %d, \"%s\"", name,
         (int)status, sentence);
  munmap(memory, PAGE * (PAGES + 1));
}

static void compute(tigon_context *context) {
  float x[] = {1, -2, 3, 4}, w[] = {2, 1, 1, 1}, y[4];
  const tigon_rms_norm_fwd_args args = {.x = tigon_tensor_2d(x, TIGON_F32, 1, 4),
                                        .w = tigon_tensor_1d(w, TIGON_F32, 4),
                                        .y = tigon_tensor_2d(y, TIGON_F32, 1, 4),
                                        .eps = 0};
  EXPECT(tigon_rms_norm_fwd(context, &args) == TIGON_OK, "%s", tigon_last_error(context));
  for (int i = 0; i < 4; ++i)
    EXPECT(fabs((double)y[i] - (double)(x[i] * w[i]) / sqrt(7.5)) < 1e-5, "y[%d] is %g", i, (double)y[i]);
}

int main(void) {
  tigon_context *context;
  if (tigon_context_create(&(tigon_context_desc){.device = "cpu", .threads = 1}, &context) != TIGON_OK) return 1;
  EXPECT(tigon_version() / 10000 == TIGON_VERSION_MAJOR, "the library's version is %d", tigon_version());
  int count = 0;
#define ENTRY(name, args) refuse(context, #name, (entry_call *)tigon_##name, sizeof(args)), ++count;
#include "entries.def"
  compute(context);
  tigon_context_destroy(context);
  printf("%d entries of the first ABI, %s\n", count, failed ? "not all as they were" : "all as they were");
  return failed;
}
