/* tigon_environment() in odd environments: none at all, entries that are no variables, and more of them than it tells. */
#include <unistd.h>

#include "api/api.h"
#include <tigon/environment.h>

extern char **environ;

enum { MANY = 600, TOLD = 512 /* at most */ };

typedef struct told {
  int count[2]; /* known ones, unknown ones */
  char cpu[512], names[1024];
} told;

static void note(void *user, const char *part, const char *name, const char *text) {
  told *t = user;
  assert_true(*part && *name && *text);
  if (strcmp(part, "devices") == 0 && strcmp(name, "cpu") == 0) snprintf(t->cpu, sizeof t->cpu, "%s", text);
  const bool known = strcmp(part, "environment") == 0, unknown = strcmp(part, "unknown") == 0;
  if (name[0] == '(' || !(known || unknown)) return;
  ++t->count[unknown];
  const size_t used = strlen(t->names);
  snprintf(t->names + used, sizeof t->names - used, "%s%s=%s", used ? " " : "", name, text);
}

static told tell(char **variables) {
  char **kept = environ;
  told t = {.cpu = ""};
  environ = variables;
  tigon_environment(note, &t);
  environ = kept;
  return t;
}

static void test_variables(void **state) {
  (void)state;
  char *some[] = {"TIGON_NEW=1", "NO_EQUALS", "OTHER=3", "OMP_NUM_THREADS=2", "TIGON_CPU=scalar", "TIGON_CPUS=4", NULL};
  told t = tell(some);
  assert_string_equal(t.names, "OMP_NUM_THREADS=2 TIGON_CPU=scalar TIGON_CPUS=4 TIGON_NEW=1");
  assert_int_equal(t.count[1], 2);
  assert_non_null(strstr(t.cpu, "variant scalar of "));
}

static void test_wrong_variant(void **state) {
  (void)state;
  char *wrong[] = {"TIGON_CPU=mmx", NULL};
  assert_non_null(strstr(tell(wrong).cpu, "not there: context: variant is \"mmx\", must be one of "));
}

static void test_none_and_many(void **state) {
  (void)state;
  static char text[MANY][24], *many[MANY + 1];
  for (int i = 0; i < MANY; ++i) {
    snprintf(text[i], sizeof text[i], "OMP_%d=1", i);
    many[i] = text[i];
  }
  assert_int_equal(tell(many).count[0], TOLD);
  assert_int_equal(tell(NULL).count[0], 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_variables), cmocka_unit_test(test_wrong_variant),
                                     cmocka_unit_test(test_none_and_many)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
