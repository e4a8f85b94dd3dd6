/* Seeded random requests for the planner's property tests, and the tests' own account of what a plan describes. Nothing
 * here calls the planner's internals. */
#ifndef TIGON_TESTS_PLAN_RANDOM_H
#define TIGON_TESTS_PLAN_RANDOM_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ascend/plan/plan.h"

/* splitmix64 (Steele, Lea, Flood 2014). */
static inline uint64_t random_next(uint64_t *state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/* In [low, high]. */
static inline int64_t random_between(uint64_t *state, int64_t low, int64_t high) {
  return low + (int64_t)(random_next(state) % (uint64_t)(high - low + 1));
}

/* In [1, 2^bits], every power of two alike; often next to one. */
static inline int64_t random_size(uint64_t *state, int bits) {
  const int64_t power = (int64_t)1 << random_between(state, 0, bits);
  switch (random_next(state) % 4) {
    case 0: return power;
    case 1: return power > 1 ? power - 1 : 1;
    case 2: return power + 1;
    default: return random_between(state, 1, power);
  }
}

static inline uint64_t test_seed(void) {
  const char *text = getenv("TIGON_SEED");
  return text ? strtoull(text, NULL, 0) : 20240607u;
}

typedef struct random_case {
  tigon_footprint footprint;
  tigon_device_desc device;
  tigon_plan_request request; /* points at the two above */
  tigon_dtype dtype;
} random_case;

/* 64 KiB and 1 core to 256 KiB and 132 cores. */
static inline void random_device(uint64_t *state, tigon_device_desc *device) {
  if (random_next(state) % 4 == 0) {
    *device = *tigon_device_desc_at((int)random_between(state, 0, 5));
    return;
  }
  memset(device, 0, sizeof *device);
  snprintf(device->name, sizeof device->name, "random");
  device->onchip_bytes = random_between(state, 64 * 1024, 256 * 1024);
  device->cores = random_between(state, 1, 132);
  device->grid_limit = random_next(state) % 2 ? 65535 : random_between(state, 1, 300);
  device->onchip_alignment = 16 << random_between(state, 0, 3);
  device->memory_alignment = 64 << random_between(state, 0, 3);
  device->transfer_bytes = 1024 << random_between(state, 0, 4);
  device->vector_bytes = 16 << random_between(state, 0, 4);
  device->buffers = (int)random_between(state, 1, 2);
  device->bandwidth[0].cores = 1;
  device->bandwidth[0].gbps = 100;
  if (random_next(state) % 2) {
    device->bandwidth[1].cores = device->cores / 2 + 2;
    device->bandwidth[1].gbps = 60;
    device->bandwidth[2].cores = device->cores + 3;
    device->bandwidth[2].gbps = 30;
  }
  device->cached_gbps = 137;
  device->vector_gops = 50;
  device->launch_us = 5;
  device->start_us_per_core = 0.05;
  device->tile_us = random_next(state) % 8 ? 0.3 : 0;
}

static inline void random_request(uint64_t *state, int row_bits, int col_bits, random_case *c) {
  int count = 0;
  const char *op, *entry;
  while (tigon_footprint_at(count, &op, &entry)) count++;
  c->dtype = (tigon_dtype)random_between(state, TIGON_F32, TIGON_BF16);
  bool found;
  do { /* tests/ascend holds the other walks to what the simulator counts */
    tigon_footprint_at((int)random_between(state, 0, count - 1), &op, &entry);
    found = tigon_footprint_find(op, entry, c->dtype, &c->footprint);
  } while (!found || c->footprint.walk != TIGON_WALK_ROWS);
  random_device(state, &c->device);
  if (random_next(state) % 8 == 0) c->footprint.column_params = c->footprint.ranges = 0;
  if (random_next(state) % 8 == 0) c->footprint.column_sums = c->footprint.column_sums ? 2 : 0;
  memset(&c->request, 0, sizeof c->request);
  c->request.footprint = &c->footprint;
  c->request.device = &c->device;
  c->request.rows = random_size(state, row_bits);
  c->request.cols = random_size(state, col_bits);
  if (c->footprint.row_tables > 0) c->request.table_cols = random_size(state, 10);
  if (tigon_footprint_is_flat(&c->footprint) && random_next(state) % 2) c->request.rows = 1;
  c->request.force = (tigon_plan_case)(random_next(state) % 2 ? 0 : random_between(state, 0, TIGON_CASE_LAST));
  if (random_next(state) % 4 == 0) { /* case G */
    c->request.groups = random_size(state, row_bits < 6 ? row_bits : 6);
    c->request.run = random_size(state, col_bits < 12 ? col_bits : 12);
    c->request.rows = (c->request.rows + c->request.groups - 1) / c->request.groups * c->request.groups;
    c->request.cols = (c->request.cols + c->request.run - 1) / c->request.run * c->request.run;
  }
}

static inline const char *random_case_text(const random_case *c) {
  static char text[256];
  snprintf(
      text, sizeof text,
      "%s %s %s %lldx%lld groups %lld run %lld force %c on %s: %lld bytes, %lld cores, grid limit %lld, %d buffers",
      c->footprint.op, c->footprint.entry, c->dtype == TIGON_F32 ? "f32" : "16-bit", (long long)c->request.rows,
      (long long)c->request.cols, (long long)c->request.groups, (long long)c->request.run,
      tigon_plan_case_letter(c->request.force), c->device.name, (long long)c->device.onchip_bytes,
      (long long)c->device.cores, (long long)c->device.grid_limit, c->device.buffers);
  return text;
}

/* Bytes per element of all streams, each moved once, or as often as it says. */
static inline int64_t element_bytes(const tigon_footprint *f, bool passes) {
  int64_t bytes = 0;
  for (int i = 0; i < f->inputs + f->outputs; i++)
    bytes += f->stream[i].element_bytes * (passes ? f->stream[i].passes : 1);
  return bytes;
}

static inline int64_t at_least_one(int64_t n) { return n > 1 ? n : 1; }

/* Elements of a column vector, of all groups. */
static inline int64_t vector_elements(const tigon_plan_request *r) {
  return at_least_one(r->groups) * (r->cols / at_least_one(r->run));
}

/* Bytes that a plan's tiles certainly take, alignment aside. */
static inline int64_t tile_bytes_at_least(const random_case *c, const tigon_plan *plan) {
  const tigon_footprint *f = &c->footprint;
  const int64_t tile = plan->rows_per_tile * plan->cols_per_tile, buffers = c->device.buffers;
  int64_t bytes = tile * 4 * f->f32_temporaries;
  for (int i = 0; i < f->inputs + f->outputs; i++) {
    const tigon_stream_footprint *s = &f->stream[i];
    const bool kept = plan->cut == TIGON_CASE_D && s->passes > 1;
    bytes += kept ? plan->cols * s->element_bytes * plan->row_buffers : tile * s->element_bytes * buffers;
  }
  const bool whole = plan->cut <= TIGON_CASE_C;
  const int64_t run = at_least_one(c->request.run);
  const int params = f->column_params - (whole && f->ranges && f->column_sums > 0);
  bytes += 4 * (plan->cols_per_tile / run) * params * (whole ? 1 : buffers);
  bytes += 4 * ((plan->cut == TIGON_CASE_D ? plan->cols : plan->cols_per_tile) / run) * f->column_sums;
  bytes += 4 * plan->rows_per_tile * ((f->row_scalars_in + f->row_scalars_out) * buffers + f->partials);
  return bytes;
}

#endif
