/* The four pipes: handing instructions over, flags, barriers, and the end of a block. */
#include <string.h>

#include "ascend/sim/core.h"

/* Cycles of an instruction on the scalar pipe, which handing one over is, too (no public figure). */
#define ISSUE_CYCLES 4.0

static double later(double a, double b) { return a > b ? a : b; }

/* ---- taking instructions from the queues ---- */

static sim_flag *flag_of(tigon_sim *sim, const sim_instruction *i) { return &sim->flags[i->from][i->to][i->id]; }

static void set_flag(tigon_sim *sim, const sim_instruction *i) {
  sim_flag *flag = flag_of(sim, i);
  if (flag->set) {
    tigon_sim_fail(
        sim, i, SIM_BAD_FLAG, 0,
        "flag %d from %s to %s is set again, and nothing has awaited what instruction %lld (line %d) set. Fix: "
        "sync_wait between the two, or another id",
        i->id, tigon_sim_pipe_name(i->from), tigon_sim_pipe_name(i->to), (long long)flag->number, flag->where.line);
    return;
  }
  /* The scalar pipe stands still in its own waits, so that what it hands over afterwards comes after them. */
  if (i->to != PIPE_S && flag->awaited > sim->known[i->from][i->to]) {
    const char *from = tigon_sim_pipe_name(i->from), *to = tigon_sim_pipe_name(i->to);
    tigon_sim_fail(
        sim, i, SIM_EARLY_FLAG, 0,
        "flag %d from %s to %s is set again, and nothing tells %s that the wait in line %d is done: the flag "
        "may still be set. Fix: sync_set(PIPE_%s, PIPE_%s, id) after that wait and sync_wait(PIPE_%s, PIPE_%s, "
        "id) before this, or another id",
        i->id, from, to, from, flag->awaited_where.line, to, from, to, from);
    return;
  }
  flag->set = true;
  flag->time = sim->time[i->from];
  flag->where = i->where;
  flag->number = i->number;
  memcpy(flag->known, sim->known[i->from], sizeof flag->known);
  flag->known[i->from] = sim->done[i->from];
}

static void take_flag(tigon_sim *sim, const sim_instruction *i) {
  sim_flag *flag = flag_of(sim, i);
  int64_t *own = &sim->known[i->to][i->to];
  flag->awaited = ++sim->done[i->to];
  flag->awaited_where = i->where;
  sim->history[i->to][flag->awaited % SIM_HISTORY] = (sim_done){i->where, i->number};
  if (*own == flag->awaited - 1) *own = flag->awaited; /* nothing on the pipe itself has to wait for a wait */
  for (int p = 0; p < SIM_PIPES; ++p)
    if (flag->known[p] > sim->known[i->to][p]) sim->known[i->to][p] = flag->known[p];
  sim->time[i->to] = later(sim->time[i->to], flag->time);
  flag->set = false;
}

/* Loads and stores share the way to global memory: a transfer takes what is free of it from `ready` on, until it had `cycles`.
 * *start is the first of them; the end is returned. */
static double take_bus(tigon_sim *sim, double ready, double cycles, double *start) {
  int64_t first = sim->bus_count;
  while (first > 0 && sim->bus[first - 1].end >= ready) --first;
  if (first < sim->bus_count && sim->bus[first].begin <= ready) ready = sim->bus[first++].end;
  *start = ready;
  /* From here to the end everything is taken: the spans in between become one with it. */
  double end = ready + cycles;
  int64_t next = first;
  for (; next < sim->bus_count && sim->bus[next].begin <= end; ++next) end += sim->bus[next].end - sim->bus[next].begin;
  if (first > 0 && sim->bus[first - 1].end == ready) {
    sim->bus[first - 1].end = end;
  } else {
    void *list = sim->bus;
    if (!tigon_sim_grow(sim, &list, sim->bus_count, &sim->bus_capacity, sizeof *sim->bus)) return end;
    sim->bus = list;
    memmove(sim->bus + first + 1, sim->bus + first, (size_t)(sim->bus_count++ - first) * sizeof *sim->bus);
    sim->bus[first++] = (sim_span){ready, end};
    ++next;
  }
  memmove(sim->bus + first, sim->bus + next, (size_t)(sim->bus_count - next) * sizeof *sim->bus);
  sim->bus_count -= next - first;
  return end;
}

static void work(tigon_sim *sim, const sim_instruction *i) {
  const bool transfer = i->kind != SIM_VECTOR;
  const double cycles = tigon_sim_cycles(sim, i);
  double start = later(sim->time[i->pipe], i->issued);
  const double end = transfer ? take_bus(sim, start, cycles, &start) : start + cycles;
  sim->time[i->pipe] = end;
  sim->counters.busy[i->pipe] += cycles;
  if (sim->tracing) tigon_sim_note_event(sim, i, start, end - start);
  const int64_t sequence = ++sim->done[i->pipe];
  sim->history[i->pipe][sequence % SIM_HISTORY] = (sim_done){i->where, i->number};
  if (transfer)
    tigon_sim_run_transfer(sim, i);
  else
    tigon_sim_run_vector(sim, i);
}

/* false: it waits for a flag. */
static bool execute(tigon_sim *sim, const sim_instruction *i) {
  switch (i->kind) {
    case SIM_SET: set_flag(sim, i); return true;
    case SIM_BARRIER: sim->known[i->pipe][i->pipe] = sim->done[i->pipe]; return true;
    case SIM_WAIT:
      if (!flag_of(sim, i)->set) return false;
      take_flag(sim, i);
      return true;
    case SIM_LOAD:
    case SIM_STORE:
    case SIM_VECTOR: work(sim, i); return true;
  }
  return true;
}

/* The first of a pipe's queue; false when there is none, or it is held up. */
static bool step(tigon_sim *sim, sim_pipe pipe) {
  sim_queue *queue = &sim->queues[pipe];
  if (queue->count == 0 || sim->stopped || !execute(sim, &queue->list[queue->first])) return false;
  ++queue->first;
  if (--queue->count == 0) queue->first = 0;
  return true;
}

static bool run_pipe(tigon_sim *sim, sim_pipe pipe) {
  bool moved = false;
  while (step(sim, pipe)) moved = true;
  return moved;
}

static sim_pipe any_pipe(tigon_sim *sim) {
  return (sim_pipe)((sim->chance = tigon_sim_mixed(sim->chance)) % SIM_PIPES);
}

/* The pipe that goes ahead, where one does. */
static bool ahead(const tigon_sim *sim, sim_pipe *pipe) {
  *pipe = sim->modes.order == SIM_V_FIRST ? PIPE_V : sim->modes.order == SIM_MTE2_FIRST ? PIPE_MTE2 : PIPE_MTE3;
  return sim->modes.order != SIM_EAGER && sim->modes.order != SIM_RANDOM;
}

/* Runs something, if anything can run: of all pipes, or as little as can be where one goes ahead or chance decides. */
static bool move(tigon_sim *sim) {
  sim_pipe first = PIPE_MTE2;
  if (sim->modes.order == SIM_RANDOM) first = any_pipe(sim);
  if (ahead(sim, &first) && run_pipe(sim, first)) return true;
  bool moved = false;
  for (int p = 0; p < SIM_PIPES; ++p) {
    const sim_pipe pipe = (sim_pipe)(((int)first + p) % SIM_PIPES);
    if (sim->modes.order == SIM_EAGER)
      moved = run_pipe(sim, pipe) || moved;
    else if (step(sim, pipe))
      return true;
  }
  return moved;
}

/* What runs at once when an instruction is handed over. The scalar pipe is the program itself, which has come this far. */
static void advance(tigon_sim *sim) {
  sim_pipe first;
  run_pipe(sim, PIPE_S);
  if (ahead(sim, &first)) {
    run_pipe(sim, first);
  } else if (sim->modes.order == SIM_RANDOM) {
    while (any_pipe(sim) != PIPE_S) step(sim, any_pipe(sim));
  } else {
    while (move(sim)) continue;
  }
}

static bool all_empty(const tigon_sim *sim) {
  for (int p = 0; p < SIM_PIPES; ++p)
    if (sim->queues[p].count > 0) return false;
  return true;
}

static bool push(tigon_sim *sim, sim_queue *queue, const sim_instruction *i) {
  if (queue->first > 0 && queue->first + queue->count == queue->capacity) {
    memmove(queue->list, queue->list + queue->first, (size_t)queue->count * sizeof *queue->list);
    queue->first = 0;
  }
  void *list = queue->list;
  if (!tigon_sim_grow(sim, &list, queue->first + queue->count, &queue->capacity, sizeof *queue->list)) return false;
  queue->list = list;
  queue->list[queue->first + queue->count++] = *i;
  return true;
}

void tigon_sim_scalar_work(tigon_sim *sim, int count) { sim->time[PIPE_S] += count * ISSUE_CYCLES; }

/* A call in count form is four instructions: it sets the way of counting and the mask, works, and sets the way back. */
enum { COUNT_FORM_INSTRUCTIONS = 4 };

void tigon_sim_issue(tigon_sim *sim, sim_instruction *i) {
  if (sim->stopped) return;
  i->number = ++sim->issued;
  tigon_sim_scalar_work(sim, i->counted ? COUNT_FORM_INSTRUCTIONS : 1);
  i->issued = sim->time[PIPE_S];
  if (push(sim, &sim->queues[i->pipe], i)) advance(sim);
}

/* The first instruction that is held up, as a report. */
static void deadlock(tigon_sim *sim) {
  for (int p = 0; p < SIM_PIPES; ++p) {
    if (sim->queues[p].count == 0) continue;
    const sim_instruction *i = &sim->queues[p].list[sim->queues[p].first];
    tigon_sim_fail(
        sim, i, SIM_DEADLOCK, 0,
        "%s waits for flag %d from %s for ever. Fix: sync_set(PIPE_%s, PIPE_%s, %d) after what it waits for, with "
        "this pair of pipes and this id",
        tigon_sim_pipe_name(i->to), i->id, tigon_sim_pipe_name(i->from), tigon_sim_pipe_name(i->from),
        tigon_sim_pipe_name(i->to), i->id);
    return;
  }
}

static void finish_all(tigon_sim *sim) {
  while (move(sim)) continue;
  if (!all_empty(sim) && !sim->stopped) deadlock(sim);
}

void tigon_sim_finish_block(tigon_sim *sim) {
  finish_all(sim);
  for (int from = 0; from < SIM_PIPES; ++from)
    for (int to = 0; to < SIM_PIPES; ++to)
      for (int id = 0; id < SIM_FLAGS; ++id) {
        const sim_flag *flag = &sim->flags[from][to][id];
        if (!flag->set) continue;
        const sim_instruction at = {.where = flag->where, .number = flag->number};
        tigon_sim_fail(
            sim, &at, SIM_BAD_FLAG, 0,
            "flag %d from %s to %s is still set at the end: the next kernel's first wait would not wait. Fix: "
            "sync_wait(PIPE_%s, PIPE_%s, %d) before the end",
            id, tigon_sim_pipe_name(from), tigon_sim_pipe_name(to), tigon_sim_pipe_name(from), tigon_sim_pipe_name(to),
            id);
      }
}

/* ---- the dialect's calls ---- */

static bool flag_is_sane(tigon_sim *sim, const sim_instruction *i) {
  if (i->id >= 0 && i->id < SIM_FLAGS && i->from < SIM_PIPES && i->to < SIM_PIPES && i->from != i->to) return true;
  sim_instruction numbered = *i;
  numbered.number = sim->issued + 1;
  tigon_sim_fail(
      sim, &numbered, SIM_BAD_FLAG, 0,
      "flag %d from %s to %s does not exist. Fix: an id from 0 to %d between two different pipes; on one pipe, "
      "sync_pipe",
      i->id, tigon_sim_pipe_name(i->from), tigon_sim_pipe_name(i->to), SIM_FLAGS - 1);
  return false;
}

void tigon_sim_set(sim_where where, sim_pipe from, sim_pipe to, int id) {
  sim_instruction i = {.where = where, .kind = SIM_SET, .pipe = from, .from = from, .to = to, .id = id};
  if (!tigon_sim_now->stopped && flag_is_sane(tigon_sim_now, &i)) tigon_sim_issue(tigon_sim_now, &i);
}

void tigon_sim_wait(sim_where where, sim_pipe from, sim_pipe to, int id) {
  sim_instruction i = {.where = where, .kind = SIM_WAIT, .pipe = to, .from = from, .to = to, .id = id};
  if (tigon_sim_now->stopped || !flag_is_sane(tigon_sim_now, &i)) return;
  tigon_sim_issue(tigon_sim_now, &i);
  /* The scalar pipe itself stands still until the flag is there. */
  if (to != PIPE_S) return;
  while (tigon_sim_now->queues[PIPE_S].count > 0 && move(tigon_sim_now)) continue;
  if (tigon_sim_now->queues[PIPE_S].count > 0 && !tigon_sim_now->stopped) deadlock(tigon_sim_now);
}

void tigon_sim_barrier(sim_where where, sim_pipe pipe) {
  tigon_sim *sim = tigon_sim_now;
  sim_instruction i = {.where = where, .kind = SIM_BARRIER, .pipe = pipe};
  if (sim->stopped) return;
  if (pipe == PIPE_S) {
    i.number = sim->issued + 1;
    tigon_sim_fail(sim, &i, SIM_BAD_BARRIER, 0,
                   "sync_pipe(PIPE_S): the scalar pipe has no barrier. Fix: leave it out, its own work is in order");
    return;
  }
  if (pipe != PIPE_ALL) {
    tigon_sim_issue(sim, &i);
    return;
  }
  ++sim->issued;
  finish_all(sim);
  double end = 0;
  for (int p = 0; p < SIM_PIPES; ++p) end = later(end, sim->time[p]);
  for (int p = 0; p < SIM_PIPES; ++p) {
    memcpy(sim->known[p], sim->done, sizeof sim->done);
    sim->time[p] = end;
  }
}
