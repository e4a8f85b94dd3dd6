/* Hosts of other kinds, and what the system refuses: files under /proc and /sys, uname, affinity, memory. */
#include <errno.h>
#include <sched.h>
#include <sys/utsname.h>

#include "api/api.h"
#include "core/context.h"
#include "core/machine.h"
#include "faults.h"
#include <tigon/environment.h>

/* A file of this host; text NULL: it does not open, with this error. */
typedef struct file {
  const char *path, *text;
  int error;
} file;
static const file *files; /* ended by path NULL; NULL: those of the true host */

FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode) {
  if (!files) return __real_fopen(path, mode);
  const file *f = files;
  while (f->path && strcmp(f->path, path) != 0) ++f;
  errno = f->error ? f->error : ENOENT;
  return f->text ? fmemopen((void *)f->text, strlen(f->text), "r") : NULL;
}

static bool refused; /* uname and affinity are */
int __real_uname(struct utsname *to);
int __wrap_uname(struct utsname *to);
int __wrap_uname(struct utsname *to) { return refused ? -1 : __real_uname(to); }
int __real_sched_getaffinity(pid_t of, size_t bytes, cpu_set_t *to);
int __wrap_sched_getaffinity(pid_t of, size_t bytes, cpu_set_t *to);
int __wrap_sched_getaffinity(pid_t of, size_t bytes, cpu_set_t *to) {
  return refused ? -1 : __real_sched_getaffinity(of, bytes, to);
}

static tigon_machine read_as(const file *of) {
  tigon_machine machine;
  files = of;
  tigon_machine_read(&machine);
  files = NULL;
  return machine;
}

#define CPU "/proc/cpuinfo"
#define CACHE(index, name) "/sys/devices/system/cpu/cpu0/cache/index" #index "/" name
#define CACHE_OF(index, level, type, size) \
  {CACHE(index, "level"), level, 0}, {CACHE(index, "type"), type, 0}, { CACHE(index, "size"), size, 0 }

static void test_x86(void **state) {
  (void)state;
  static const file of[] = {{CPU, "model name : A CPU\nflags : fpu avx2 fma avx512f\n", 0},
                            CACHE_OF(0, "1\n", "Instruction\n", "32K\n"),
                            CACHE_OF(1, "1\n", "Data\n", "48K\n"),
                            CACHE_OF(2, "2\n", "Unified\n", "2M\n"),
                            {0}};
  const tigon_machine m = read_as(of);
  assert_string_equal(m.model, "A CPU");
  assert_string_equal(m.features, "avx2 fma avx512f");
  assert_true(m.l1d_bytes == 48 << 10 && m.l2_bytes == 2 << 20 && m.l3_bytes == 0);
  assert_true(m.cores >= 1 && !m.lacked_memory);
}

/* Linux on Arm names no model, and calls its flags otherwise. Nothing is said of eight caches. */
static void test_arm(void **state) {
  (void)state;
  static const file of[] = {{CPU, "processor : 0\nFeatures : fp asimd sve\n", 0},
                            CACHE_OF(0, "1", "Data", ""),
                            CACHE_OF(1, "4", "", ""),
                            CACHE_OF(2, "4", "", ""),
                            CACHE_OF(3, "4", "", ""),
                            CACHE_OF(4, "4", "", ""),
                            CACHE_OF(5, "4", "", ""),
                            CACHE_OF(6, "4", "", ""),
                            CACHE_OF(7, "4", "", ""),
                            {0}};
  struct utsname system;
  char model[sizeof system.machine + 16];
  assert_int_equal(uname(&system), 0);
  snprintf(model, sizeof model, "%s processor", system.machine);
  tigon_machine m = read_as(of);
  assert_string_equal(m.model, model);
  assert_string_equal(m.features, "asimd sve");
  assert_true(m.l1d_bytes == 0 && m.l2_bytes == 0);
  refused = true;
  m = read_as(of);
  refused = false;
  assert_string_equal(m.model, "");
  assert_true(m.cores >= 1);
}

/* That a file is absent is no lack of memory. */
static void test_lack(void **state) {
  (void)state;
  static const file lacking[] = {{CPU, NULL, ENOMEM}, {0}}, absent[] = {{0}};
  assert_true(read_as(lacking).lacked_memory);
  assert_false(read_as(absent).lacked_memory);
}

static void note(void *user, const char *part, const char *name, const char *text) {
  char *os = user;
  if (strcmp(part, "system") == 0 && strcmp(name, "os") == 0) snprintf(os, 256, "%s", text);
}

static void test_system(void **state) {
  (void)state;
  static const file none[] = {{0}};
  char os[256] = "";
  files = none;
  tigon_environment(note, os);
  assert_memory_equal(os, "not known; ", 11);
  os[0] = 0;
  refused = true;
  tigon_environment(note, os);
  refused = false;
  files = NULL;
  assert_string_equal(os, "");
}

static void ignore(void *to, const tigon_launch *launch) { (void)to, (void)launch; }

static void test_no_memory_for_a_context(void **state) {
  (void)state;
  tigon_context *context = NULL;
  faults_begin("memory", 1, 0, ENOMEM);
  const tigon_status status = tigon_context_create(&(tigon_context_desc){.device = "cpu"}, &context);
  faults_end();
  api_expect(NULL, status, TIGON_ERROR_OUT_OF_MEMORY, "context: out of memory");
  assert_null(context);
  faults_begin("memory", 1, 0, ENOMEM);
  context = tigon_context_described("910B4", ignore, NULL);
  faults_end();
  assert_null(context);
  assert_null(tigon_context_described("no such part", ignore, NULL));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_x86), cmocka_unit_test(test_arm),
                                     cmocka_unit_test(test_lack), cmocka_unit_test(test_system),
                                     cmocka_unit_test(test_no_memory_for_a_context)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
