/* The timeline of launches, in the Chrome trace format: a process a core, a thread a pipe. */
#include "ascend/sim/core.h"

void tigon_sim_trace(tigon_sim *sim) {
  sim->tracing = true;
  sim->event_count = 0;
  sim->trace_start = 0;
}

void tigon_sim_note_event(tigon_sim *sim, const sim_instruction *i, double start, double cycles) {
  void *list = sim->events;
  if (!tigon_sim_grow(sim, &list, sim->event_count, &sim->event_capacity, sizeof *sim->events)) return;
  sim->events = list;
  const double mhz = sim->soc->mhz;
  sim->events[sim->event_count++] = (sim_event){.name = i->where.what,
                                                .core = sim->block % sim->soc->device.cores,
                                                .pipe = i->pipe,
                                                .line = i->where.line,
                                                .start = sim->trace_start + start / mhz,
                                                .cycles = cycles / mhz};
}

bool tigon_sim_write_trace(const tigon_sim *sim, FILE *file) {
  fprintf(file, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
  for (int64_t core = 0; core < sim->soc->device.cores; ++core)
    for (int p = 0; p < PIPE_S; ++p)
      fprintf(file, "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%lld,\"tid\":%d,\"args\":{\"name\":\"%s\"}},\n",
              (long long)core, p, tigon_sim_pipe_name((sim_pipe)p));
  for (int64_t e = 0; e < sim->event_count; ++e) {
    const sim_event *event = &sim->events[e];
    fprintf(file,
            "{\"ph\":\"X\",\"name\":\"%s\",\"pid\":%lld,\"tid\":%d,\"ts\":%.4f,\"dur\":%.4f,\"args\":{\"line\":%d}},\n",
            event->name, (long long)event->core, (int)event->pipe, event->start, event->cycles, event->line);
  }
  fprintf(file, "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":0,\"args\":{\"name\":\"%s\"}}]}\n", sim->soc->name);
  return !ferror(file);
}
