/* Memory that runs out in each call of the library on one device. The nth allocation fails, for n = 1, 2, .. until the call
 * passes. A failed call has a typed status and a sentence. It has written nothing and lost nothing, and passes afterwards. Each
 * n has a process of its own, so that caches are cold. Arguments: the device, and how many allocations of a call fail at most. */
#include <ftw.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/context.h"
#include "ffi/ffi.h"
#include "opencl/trial.h"
#include "shim.h"

enum { TRIES = 20000, SKIPPED = 77 };

/* ---- what runs in a process of its own ---- */

typedef struct outcome {
  bool ended;
  long first, second; /* allocations of the first and of the second call */
  long alive;         /* blocks that are left */
  uint64_t result;    /* what the first call that passes makes */
  tigon_status status;
  uint32_t seed; /* seed of a legal call; TRIES: none was found */
  char sentence[512], wrong[512];
} outcome;
static outcome *shared;

static struct {
  const char *device;
  tigon_context *context;
  void *memory, *workspace;
  int entry;
  uint32_t seed;
  size_t bytes;
  trial trial;
} now;

__attribute__((format(printf, 1, 2), noreturn)) static void wrong(const char *format, ...) {
  va_list list;
  va_start(list, format);
  vsnprintf(shared->wrong, sizeof shared->wrong, format, list);
  va_end(list);
  _exit(1);
}

static const char *sentence(void) { return tigon_last_error(now.context); }

static void must(tigon_status status, const char *what) {
  if (status != TIGON_OK) wrong("%s before the test: %s", what, sentence());
}

/* ---- contexts and memory ---- */

static tigon_status create(void) {
  tigon_context_destroy(now.context);
  tigon_context *made = (tigon_context *)&now;
  const tigon_status status = tigon_context_create(&(tigon_context_desc){.device = now.device, .threads = 2}, &made);
  if (status != TIGON_OK && made) wrong("a context is given beside an error");
  return now.context = made, status;
}
static void open_context(void) { must(create(), "context"); }
static void close_context(void) {
  if (now.context) {
    tigon_free(now.context, now.memory);
    tigon_free(now.context, now.workspace);
  }
  tigon_context_destroy(now.context);
  now.context = NULL;
}

static tigon_status allocate(void) {
  tigon_free(now.context, now.memory);
  const tigon_status status = tigon_alloc(now.context, 1000, &now.memory);
  if (status != TIGON_OK && now.memory) wrong("memory is given beside an error");
  return status;
}

/* ---- fronts ---- */

static tigon_status query(void) {
  trial_set_workspace(&now.trial, NULL, 0);
  return tigon_schema_workspace(now.entry, now.context, now.trial.args, &now.bytes, NULL);
}

/* The call of a seed, its tensors and workspace on the device. */
static tigon_status make_call(void) {
  trial *t = &now.trial;
  TIGON_TRY(tigon_alloc(now.context, TRIAL_BYTES, &now.memory));
  TIGON_TRY(tigon_copy(now.context, now.memory, t->memory, t->used));
  trial_move(t, (uintptr_t)now.memory - (uintptr_t)t->memory);
  TIGON_TRY(query());
  TIGON_TRY(tigon_alloc(now.context, now.bytes, &now.workspace));
  trial_set_workspace(t, now.workspace, now.bytes);
  return TIGON_OK;
}

/* The first dtype that the device's own kernels have, or its borrowed ones. */
static tigon_dtype dtype_of(int entry) {
  const uint32_t own = tigon_entry_dtypes(now.context->kernels, entry);
  tigon_dtype dtype = TIGON_F32;
  while (own && !(own & TIGON_BIT(dtype))) ++dtype;
  return dtype;
}

static void open_call(void) {
  open_context();
  if (!trial_make(&now.trial, now.entry, dtype_of(now.entry), now.seed)) wrong("the call cannot be made");
  must(make_call(), "the call's memory");
}

static tigon_status call(void) { return tigon_schema_call(now.entry, now.context, now.trial.args); }

/* All memory of the call: FNV-1a. */
static uint64_t written(void) {
  static unsigned char here[TRIAL_BYTES];
  must(tigon_context_sync(now.context), "sync");
  must(tigon_copy(now.context, here, now.memory, now.trial.used), "copy");
  uint64_t hash = 0xcbf29ce484222325u;
  for (size_t i = 0; i < now.trial.used; ++i) hash = (hash ^ here[i]) * 0x100000001b3u;
  return hash;
}
static uint64_t answered(void) { return now.bytes; }

/* ---- OpenCL's cache of kernels and verdicts ---- */

static char caches[] = "oom-cache-XXXXXX"; /* a folder that has one of each process */

/* No cache is there yet, and no entry is trusted unchecked. */
static void open_cold(void) {
  char own[64];
  snprintf(own, sizeof own, "%s/%d", caches, (int)getpid());
  setenv("TIGON_OPENCL_CACHE", own, 1);
  setenv("TIGON_OPENCL_TRUST", "0", 1);
  open_call();
}

/* Another process has filled the cache. */
static void open_warm(void) {
  open_cold();
  int status = 0;
  const pid_t other = fork();
  if (other == 0) _exit(call() != TIGON_OK);
  waitpid(other, &status, 0);
  if (status) wrong("the cache could not be filled");
}

/* Under a temporary name nothing is left. */
static int is_left(const char *path, const struct stat *is, int kind, struct FTW *walk) {
  (void)is, (void)kind;
  return strchr(path + walk->base, '.') != NULL;
}
static uint64_t cached(void) {
  const char *own = getenv("TIGON_OPENCL_CACHE");
  if (access(own, F_OK) == 0 && nftw(own, is_left, 8, FTW_PHYS) != 0) wrong("half a file is left in the cache");
  return written();
}
static int remove_one(const char *path, const struct stat *is, int kind, struct FTW *walk) {
  (void)is, (void)kind, (void)walk;
  return remove(path);
}

/* A seed whose call the oracle and the device take. */
static void find_seed(void) {
  tigon_context *oracle;
  must(tigon_context_create(&(tigon_context_desc){.device = "ref"}, &oracle), "oracle");
  open_context();
  tigon_context *device = now.context;
  const tigon_dtype dtype = dtype_of(now.entry);
  shared->seed = TRIES;
  for (uint32_t seed = 0; seed < TRIES && shared->seed == TRIES; ++seed) {
    if (!trial_make(&now.trial, now.entry, dtype, seed)) continue;
    now.context = oracle;
    tigon_status status = make_call();
    if (status == TIGON_OK) status = call();
    tigon_free(oracle, now.memory), tigon_free(oracle, now.workspace);
    now.memory = now.workspace = NULL, now.context = device;
    if (status != TIGON_OK || !trial_make(&now.trial, now.entry, dtype, seed)) continue;
    if (make_call() == TIGON_OK && call() == TIGON_OK) shared->seed = seed;
    tigon_free(now.context, now.memory), tigon_free(now.context, now.workspace);
    now.memory = now.workspace = NULL;
  }
}

/* ---- the rest ---- */

static void ignore(void *to, const tigon_launch *launch) { ++*(int64_t *)to, (void)launch; }
static const char *described; /* a device by its name in a table */
static int64_t launches;
static tigon_status describe(void) {
  tigon_context_destroy(now.context);
  now.context = tigon_context_described(described, ignore, &launches);
  if (!now.context) return tigon_fail(NULL, TIGON_ERROR_OUT_OF_MEMORY, "no context is there");
  void *memory;
  TIGON_TRY(tigon_alloc(now.context, 1 << 20, &memory));
  const tigon_tensor x = tigon_tensor_2d(memory, TIGON_F32, 64, 1024);
  return tigon_relu_squared_fwd(now.context, &(tigon_relu_squared_fwd_args){.x = x, .y = x});
}

/* By what a backend looks for before it answers. */
static tigon_status ask(void) {
  tigon_queue *queue = &now.context->queue;
  const tigon_entry *e;
  for (int i = 0; (e = tigon_entry_at(i)); ++i) {
    tigon_supports(now.context, e->op, e->entry, TIGON_F32);
    if (queue->backend->refused) queue->backend->refused(queue, i, TIGON_F32, false);
  }
  return TIGON_OK;
}

static tigon_status raised;
void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message) {
  raised = strcmp(kind, "MemoryError") == 0 ? TIGON_ERROR_OUT_OF_MEMORY : TIGON_ERROR_DEVICE;
  if (!*message) wrong("an error without a sentence is raised");
}
static float grad[2][2] = {{3, 0}, {0, 4}}, norm, factor;
/* adamw_clip of two gradients in a list. */
static tigon_status call_ffi(void) {
  static _Alignas(64) float memory[1024];
  int64_t two = 2, one = 1, floats = 1024;
  const DLDevice cpu = {kDLCPU, 0};
  const DLDataType f32 = {kDLFloat, 32, 1};
  DLTensor views[] = {{.data = grad[0], .device = cpu, .ndim = 1, .dtype = f32, .shape = &two},
                      {.data = grad[1], .device = cpu, .ndim = 1, .dtype = f32, .shape = &two},
                      {.data = &norm, .device = cpu, .ndim = 1, .dtype = f32, .shape = &one},
                      {.data = &factor, .device = cpu, .ndim = 1, .dtype = f32, .shape = &one},
                      {.data = memory, .device = cpu, .ndim = 1, .dtype = f32, .shape = &floats}};
  ffi_value of[5];
  for (int i = 0; i < 5; ++i) of[i] = (ffi_value){.type = FFI_DLTENSOR, .pointer = &views[i]};
  ffi_sequence list = {.object = {.references = 1, .type = FFI_ARRAY}, .values = of, .count = 2};
  const ffi_value values[] = {
      {.type = FFI_ARRAY, .pointer = &list}, of[2], of[3], of[4], {.type = FFI_FLOAT, .number = 1}};
  int entry = 0;
  while (strcmp(tigon_schema_at(entry)->name, "adamw_clip") != 0) ++entry;
  return tigon_ffi_call(entry, FFI_CALL, values, 5, NULL) == 0 ? TIGON_OK : raised;
}
static uint64_t clipped(void) { return (uint64_t)(1000 * norm) << 32 | (uint64_t)(1000 * factor); }

static uint64_t nothing(void) { return 0; }
static void leave(void) {}

/* ---- one subject ---- */

typedef struct subject {
  const char *name;
  void (*open)(void);
  tigon_status (*call)(void);
  uint64_t (*result)(void);
  void (*close)(void);
  bool may_be_absent; /* a device or a thread that could not be had is DEVICE */
} subject;
static const subject context_of = {"context", leave, create, nothing, close_context, true},
                     memory_of = {"memory", open_context, allocate, nothing, close_context, false},
                     front_of = {"front", open_call, call, written, close_context, false},
                     query_of = {"query", open_call, query, answered, close_context, false},
                     question_of = {"support", open_context, ask, nothing, close_context, false},
                     plan_of = {"plan", leave, describe, nothing, close_context, false},
                     ffi_of = {"ffi", leave, call_ffi, clipped, leave, true},
                     cold_of = {"self-check", open_cold, call, cached, close_context, false},
                     warm_of = {"cache", open_warm, call, cached, close_context, false};

static void run(const subject *s, long nth, bool rest, const outcome *is) {
  oom_watch();
  s->open();
  const uint64_t before = s->result();
  oom_begin(nth, rest);
  shared->status = s->call();
  shared->first = oom_end();
  uint64_t result = s->result();
  if (shared->status != TIGON_OK) {
    /* CANN does not say why it makes no tensor */
    const bool may_be_device = s->may_be_absent || strstr(sentence(), "aclCreateTensor returned none");
    const bool typed =
        shared->status == TIGON_ERROR_OUT_OF_MEMORY || (may_be_device && shared->status == TIGON_ERROR_DEVICE);
    if (!typed) wrong("%s: %s", tigon_status_name(shared->status), sentence());
    if (!*sentence()) wrong("no sentence");
    const bool is_part = strstr(sentence(), ": the launch on "); /* earlier ones have run, as <tigon/base.h> says */
    if (result != before && !is_part) wrong("something was written before the error: %s", sentence());
    if (result != before) must(tigon_copy(now.context, now.memory, now.trial.memory, now.trial.used), "copy");
  }
  snprintf(shared->sentence, sizeof shared->sentence, "%s", sentence());
  const bool failed = shared->status != TIGON_OK;
  oom_begin(0, false);
  const tigon_status status = s->call();
  shared->second = oom_end();
  if (status != TIGON_OK) wrong("the same call does not pass afterwards: %s", sentence());
  if (failed) result = s->result();
  if (nth && result != is->result) wrong("the result differs after an error");
  shared->result = result;
  s->close();
  shared->alive = oom_alive();
  if (nth && shared->alive > is->alive) wrong("%ld blocks are lost", shared->alive - is->alive);
  shared->ended = true;
  _exit(0);
}

/* ---- the parent ---- */

static long most =
    LONG_MAX; /* allocations of one call that fail, which are evenly spread beyond the first half of these */

static struct { long subjects, points, out_of_memory, absent, passed, failed, warm, cold; } sums;

/* false: the process found something wrong, or ended by itself. */
static bool in_a_process(const subject *s, long nth, bool rest, const outcome *is, outcome *made) {
  memset(shared, 0, sizeof *shared);
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    if (s) run(s, nth, rest, is);
    find_seed();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  *made = *shared;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  if (!made->wrong[0])
    snprintf(made->wrong, sizeof made->wrong, WIFSIGNALED(status) ? "ended by signal %d" : "ended with status %d",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
  return false;
}

static void report(const subject *s, const char *of, long nth, bool rest, const outcome *o) {
  ++sums.failed;
  printf("%s %s%s%s, allocation %ld%s: %s\n", now.device, s->name, *of ? " " : "", of, nth,
         rest ? " and all after it" : "", o->wrong);
}

static bool is_front(const subject *s) { return s == &front_of || s == &query_of; }

/* An operator's call allocates nothing. On a GPU the first one may: it builds kernels. A simulator allocates, and so does the
 * stand-in for CANN. */
static bool allocates(const outcome *o) {
  const bool is_cpu = strcmp(now.device, "cpu") == 0;
  const bool counts = is_cpu || strcmp(now.device, "cuda") == 0 || strcmp(now.device, "opencl") == 0;
  return counts && (o->second > 0 || (is_cpu && o->first > 0));
}

static void test(const subject *s, const char *of) {
  outcome is, o;
  ++sums.subjects;
  if (!in_a_process(s, 0, false, NULL, &is)) {
    report(s, of, 0, false, &is);
    return;
  }
  sums.cold += s == &front_of && is.first > 0;
  sums.warm += s == &front_of && is.second > 0;
  if (is_front(s) && allocates(&is)) {
    snprintf(is.wrong, sizeof is.wrong, "it allocates %ld times, its second call %ld", is.first, is.second);
    report(s, of, 0, false, &is);
  }
  if (getenv("OOM_VERBOSE"))
    printf("%s %s %s: %ld allocations, then %ld, %ld blocks stay\n", now.device, s->name, of, is.first, is.second,
           is.alive);
  for (int rest = 0; rest < (s == &front_of ? 1 : 2); ++rest)
    for (long nth = 1; nth <= is.first;
         nth += nth < most / 2 || is.first <= most ? 1 : 1 + 2 * (is.first - most / 2) / most) {
      ++sums.points;
      if (!in_a_process(s, nth, rest, &is, &o)) {
        report(s, of, nth, rest, &o);
        continue;
      }
      if (getenv("OOM_VERBOSE"))
        printf("  %ld%s: %s\n", nth, rest ? " and all after it" : "", o.status ? o.sentence : "OK");
      ++*(o.status == TIGON_OK                    ? &sums.passed
          : o.status == TIGON_ERROR_OUT_OF_MEMORY ? &sums.out_of_memory
                                                  : &sums.absent);
    }
}

/* relu_squared_fwd is what the stand-in for a driver can compute. */
static void test_caches(void) {
  now.entry = 0;
  while (strcmp(tigon_schema_at(now.entry)->name, "relu_squared_fwd") != 0) ++now.entry;
  outcome o;
  if (!mkdtemp(caches)) exit(1);
  if (!in_a_process(NULL, 0, false, NULL, &o)) report(&cold_of, "", 0, false, &o);
  now.seed = o.seed;
  test(&cold_of, "");
  test(&warm_of, "");
  nftw(caches, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void test_fronts(void) {
  const tigon_entry *e;
  outcome o;
  for (int i = 0; (e = tigon_entry_at(i)); ++i) {
    const char *name = tigon_schema_at(i)->name;
    now.entry = i;
    if (!in_a_process(NULL, 0, false, NULL, &o)) {
      report(&front_of, name, 0, false, &o);
    } else if (o.seed == TRIES) {
      printf("%s front %s: no call of it is legal here\n", now.device, name);
    } else {
      now.seed = o.seed;
      test(&front_of, name);
      test(&query_of, name);
    }
  }
}

int main(int argc, char **argv) {
  if (argc < 2) return fputs("library DEVICE [MOST]\n", stderr), 2;
  now.device = argv[1];
  if (argc > 2) most = strtol(argv[2], NULL, 10);
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  tigon_context *context = NULL;
  const pid_t child = fork(); /* the caches of this process stay cold */
  if (child == 0) _exit(tigon_context_create(&(tigon_context_desc){.device = now.device}, &context) != TIGON_OK);
  int absent = 0;
  waitpid(child, &absent, 0);
  if (absent) return printf("skipped: %s is not there\n", now.device), SKIPPED;
  test(&context_of, "");
  test(&memory_of, "");
  test(&question_of, "");
  if (strcmp(now.device, "opencl") == 0) test_caches();
  test_fronts();
  if (strcmp(now.device, "cpu") == 0) {
    test(&ffi_of, "");
    for (const char **name = (const char *[]){"H100", "opencl", NULL}; *name; ++name) {
      described = *name;
      test(&plan_of, described);
    }
  }
  printf(
      "{\"device\": \"%s\", \"subjects\": %ld, \"points\": %ld, \"out_of_memory\": %ld, \"absent\": %ld, \"passed\": %ld, "
      "\"allocate_once\": %ld, \"allocate\": %ld, \"failed\": %ld}\n",
      now.device, sums.subjects, sums.points, sums.out_of_memory, sums.absent, sums.passed, sums.cold, sums.warm,
      sums.failed);
  return sums.failed > 0;
}
