#include "forms.h"

#include <stdio.h>
#include <string.h>

#include "cli.h"

bool forms_add(unsigned *forms, int key) {
  if (key < FORM_KEY || key >= FORM_KEY + BENCH_FORMS) return false;
  *forms |= BENCH_BIT(key - FORM_KEY);
  return true;
}

/* "linear, mlp": the operators that have it. */
static char *owners(char text[512], bench_form form) {
  const tigon_entry *entry;
  const char *last = "";
  size_t used = 0;
  for (int i = 0; (entry = tigon_entry_at(i)); ++i) {
    if (strcmp(entry->op, last) == 0) continue;
    last = entry->op;
    const bench_case *chosen = bench_case_find(last);
    if (chosen && chosen->forms & BENCH_BIT(form))
      used += (size_t)snprintf(text + used, 512 - used, "%s%s", used ? ", " : "", last);
  }
  return text;
}

void forms_refuse(const char *command, unsigned forms, unsigned has, const char *op) {
  char text[512];
  for (bench_form form = 0; form < BENCH_FORMS; ++form)
    if (forms & ~has & BENCH_BIT(form))
      cli_mistake(command, "--%s is for %s, not for %s", bench_form_option(form), owners(text, form),
                  op ? op : "any operator that is timed here");
}

char *forms_text(char text[FORMS_TEXT], unsigned forms) {
  size_t used = 0;
  text[0] = 0;
  for (bench_form form = 0; form < BENCH_FORMS; ++form)
    if (forms & BENCH_BIT(form))
      used += (size_t)snprintf(text + used, FORMS_TEXT - used, ", %s", bench_form_text(form));
  return text;
}
