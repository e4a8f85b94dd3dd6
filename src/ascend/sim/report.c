/* The sentence that says which rule was broken, where, and how to mend it. */
#include <stdarg.h>
#include <string.h>

#include "ascend/sim/core.h"

const char *tigon_sim_pipe_name(sim_pipe pipe) {
  static const char *const names[] = {"MTE2", "V", "MTE3", "S", "ALL"};
  return names[pipe];
}

void tigon_sim_fail(tigon_sim *sim, const sim_instruction *i, tigon_sim_rule rule, uint64_t address, const char *format,
                    ...) {
  if (sim->stopped) return;
  sim->stopped = true;
  tigon_sim_report_text *report = &sim->report;
  *report = (tigon_sim_report_text){.rule = rule, .block = sim->block, .address = address};
  size_t used = (size_t)snprintf(report->text, sizeof report->text, "%s", sim->kernel);
  if (i) {
    const char *slash = strrchr(i->where.file, '/');
    report->instruction = i->number;
    report->line = i->where.line;
    used +=
        (size_t)snprintf(report->text + used, sizeof report->text - used, ", block %lld, instruction %lld (%s:%d)",
                         (long long)sim->block, (long long)i->number, slash ? slash + 1 : i->where.file, i->where.line);
  }
  va_list list;
  va_start(list, format);
  if (used + 2 < sizeof report->text) {
    memcpy(report->text + used, ": ", 3);
    vsnprintf(report->text + used + 2, sizeof report->text - used - 2, format, list);
  }
  va_end(list);
}
