/* The vector pipe: what each call reads and writes, and what it does. */
#include <math.h>
#include <string.h>

#include "ascend/sim/core.h"
#include "core/half.h"

/* ---- operands ---- */

/* In repeat form: strides in bytes, `blocks` blocks of a step, of which the mask leaves `lanes` elements. */
static sim_operand side_by_side(uint32_t at, int size) { return (sim_operand){.at = at, .size = (uint8_t)size}; }
static sim_operand stepped(uint32_t at, int64_t block, int64_t step, int blocks, int lanes) {
  return (sim_operand){
      .at = at, .size = 4, .block = (int32_t)block, .step = (int32_t)step, .blocks = blocks, .lanes = lanes};
}

/* Bytes that a step's block k has under a mask. */
static int64_t block_bytes(const sim_operand *o, int k) {
  const int in_block = o->blocks == 1 ? o->lanes : UB_BLOCK / o->size, left = o->lanes - k * in_block;
  return (int64_t)(left < in_block ? left : in_block) * o->size;
}

/* Where element e of a gather comes from. */
static int64_t gathered(const tigon_sim *sim, const sim_instruction *i, int64_t e) {
  int32_t offset;
  memcpy(&offset, sim->ub + i->b.at + 4 * e, sizeof offset);
  return (int64_t)i->a.at + offset;
}

/* Each element of a gather's source; its offsets have been touched. */
static bool touch_gathered(tigon_sim *sim, const sim_instruction *i, bool mark) {
  for (int64_t e = 0; e < i->count; ++e) {
    const int64_t at = gathered(sim, i, e);
    if (at < i->a.at || at % 4 != 0) {
      tigon_sim_fail(
          sim, i, SIM_MISALIGNED, (uint64_t)i->b.at + 4 * (uint64_t)e,
          "%s: offset %lld of element %lld must be a multiple of 4, and not negative. Fix: bytes, not elements",
          i->where.what, (long long)(at - i->a.at), (long long)e);
      return false;
    }
    if (at >= i->d.at && at < i->d.at + i->count * 4) {
      tigon_sim_fail(sim, i, SIM_OVERLAP, (uint64_t)at,
                     "%s: element %lld comes from its own destination. Fix: another array for the destination",
                     i->where.what, (long long)e);
      return false;
    }
    if (!tigon_sim_touch_ub(sim, i, at, 4, false, mark)) return false;
  }
  return true;
}

static bool touch_operand(tigon_sim *sim, const sim_instruction *i, const sim_operand *o, bool write, bool mark) {
  if (!o->size) return true;
  if (i->counted) return tigon_sim_touch_ub(sim, i, o->at, i->count * o->size, write, mark);
  for (int r = 0; r < i->repeat; ++r) {
    const int64_t at = o->at + (int64_t)r * o->step;
    if (o->block == UB_BLOCK || o->blocks == 1) {
      if (!tigon_sim_touch_ub(sim, i, at, (int64_t)o->lanes * o->size, write, mark)) return false;
      continue;
    }
    for (int k = 0; k < o->blocks && block_bytes(o, k) > 0; ++k) {
      if (!tigon_sim_touch_ub(sim, i, at + (int64_t)k * o->block, block_bytes(o, k), write, mark)) return false;
      if (o->block == 0) break;
    }
  }
  return true;
}

/* The bytes from the first to the last that an operand touches: in one step, and in all. */
static int64_t span_of_step(const sim_operand *o) {
  int64_t span = 0;
  for (int k = 0; k < o->blocks && block_bytes(o, k) > 0; ++k) span = (int64_t)k * o->block + block_bytes(o, k);
  return span;
}
static int64_t span(const sim_instruction *i, const sim_operand *o) {
  return i->counted ? i->count * o->size : (int64_t)(i->repeat - 1) * o->step + span_of_step(o);
}

/* Do the steps of the one lie in the gaps of the other? */
static bool interleaved(const sim_instruction *i, const sim_operand *a, const sim_operand *b) {
  if (i->counted || a->step != b->step || a->step <= 0) return false;
  const int64_t offset = (((int64_t)b->at - a->at) % a->step + a->step) % a->step;
  return offset >= span_of_step(a) && offset + span_of_step(b) <= a->step;
}

static bool same_layout(const sim_instruction *i, const sim_operand *a, const sim_operand *b) {
  if (a->at != b->at || a->size != b->size) return false;
  return i->counted || (a->block == b->block && a->step == b->step && a->blocks == b->blocks);
}

static bool check_overlap(tigon_sim *sim, const sim_instruction *i, const sim_operand *source) {
  if (!source->size || !i->d.size || same_layout(i, &i->d, source)) return true;
  const int64_t d = i->d.at, s = source->at;
  if (d + span(i, &i->d) <= s || s + span(i, source) <= d || interleaved(i, &i->d, source)) return true;
  tigon_sim_fail(
      sim, i, SIM_OVERLAP, (uint64_t)(d > s ? d : s),
      "%s: destination 0x%llx (%lld bytes) and source 0x%llx (%lld bytes) overlap and are not the same. Fix: "
      "another array for the destination",
      i->where.what, (long long)d, (long long)span(i, &i->d), (long long)s, (long long)span(i, source));
  return false;
}

static bool check_alignment(tigon_sim *sim, const sim_instruction *i, const sim_operand *o, unsigned alignment) {
  if (!o->size || o->at % alignment == 0) return true;
  tigon_sim_fail(sim, i, SIM_MISALIGNED, o->at,
                 "%s: UB address 0x%x must be a multiple of %u. Fix: begin on a multiple of %u elements of %d bytes",
                 i->where.what, o->at, alignment, alignment / o->size, o->size);
  return false;
}

/* ---- handing over ---- */

static void issue(sim_instruction *i) {
  tigon_sim *sim = tigon_sim_now;
  if (sim->stopped) return;
  i->kind = SIM_VECTOR;
  i->pipe = PIPE_V;
  i->number = sim->issued + 1;
  const bool reduces = i->op == SIM_SUM || i->op == SIM_MAXIMUM;
  if (!check_alignment(sim, i, &i->d, reduces ? 4 : UB_BLOCK) || !check_alignment(sim, i, &i->a, UB_BLOCK) ||
      !check_alignment(sim, i, &i->b, UB_BLOCK) || (i->op != SIM_GATHER && !check_overlap(sim, i, &i->a)) ||
      !check_overlap(sim, i, &i->b) || !check_overlap(sim, i, &i->c))
    return;
  if (i->counted) {
    sim->mask = 0;
    sim->mask_count = i->count;
    sim->mask_where = i->where;
  }
  tigon_sim_issue(sim, i);
}

static void issue_counted(sim_instruction *i) {
  if (i->count > 0 && i->count <= INT32_MAX) {
    issue(i);
    return;
  }
  i->number = tigon_sim_now->issued + 1;
  tigon_sim_fail(tigon_sim_now, i, SIM_REPEAT, 0,
                 "%s takes %lld elements, must be 1 or more. Fix: leave the call out for none", i->where.what,
                 (long long)i->count);
}

/* The lanes of the mask; 0 when there is none that was meant. */
static int lanes_of_mask(tigon_sim *sim, sim_where where) {
  if (sim->stopped || sim->mask > 0) return sim->mask;
  const sim_instruction i = {.where = where, .number = sim->issued + 1};
  if (sim->mask_count >= 0)
    tigon_sim_fail(
        sim, &i, SIM_STALE_MASK, 0,
        "%s runs under the mask that %s (line %d) left behind, which is its count, %lld. Fix: v_mask_f32(lanes) after "
        "any call in count form",
        where.what, sim->mask_where.what, sim->mask_where.line, (long long)sim->mask_count);
  else
    tigon_sim_fail(sim, &i, SIM_STALE_MASK, 0, "%s runs under no mask. Fix: v_mask_f32(lanes) first", where.what);
  return 0;
}

static bool repeat_is_sane(sim_where where, int repeat) {
  tigon_sim *sim = tigon_sim_now;
  if (repeat >= 1 && repeat <= V_REPEATS) return true;
  const sim_instruction i = {.where = where, .number = sim->issued + 1};
  tigon_sim_fail(sim, &i, SIM_REPEAT, 0, "%s repeats %d times, can 1 to %d times. Fix: a loop of calls", where.what,
                 repeat, V_REPEATS);
  return false;
}

static bool strides_are_sane(sim_where where, const int *strides, int count, int limit) {
  for (int s = 0; s < count; ++s) {
    if (strides[s] >= 0 && strides[s] <= limit) continue;
    const sim_instruction i = {.where = where, .number = tigon_sim_now->issued + 1};
    tigon_sim_fail(tigon_sim_now, &i, SIM_REPEAT, 0,
                   "%s has a stride of %d, can have 0 to %d. Fix: one call a row, in count form", where.what,
                   strides[s], limit);
    return false;
  }
  return true;
}

void tigon_sim_mask(sim_where where, int lanes) {
  tigon_sim *sim = tigon_sim_now;
  if (lanes < 1 || lanes > V_LANES) {
    const sim_instruction i = {.where = where, .number = sim->issued + 1};
    tigon_sim_fail(sim, &i, SIM_REPEAT, 0, "%s of %d lanes, must be 1 to %d. Fix: the lanes of one step", where.what,
                   lanes, V_LANES);
    return;
  }
  sim->mask = lanes;
  tigon_sim_scalar_work(sim, 1);
}

void tigon_sim_binary(sim_where where, sim_op op, uint32_t d, uint32_t a, uint32_t b, int64_t n) {
  sim_instruction i = {.where = where,
                       .op = op,
                       .counted = true,
                       .count = n,
                       .d = side_by_side(d, 4),
                       .a = side_by_side(a, 4),
                       .b = side_by_side(b, 4)};
  issue_counted(&i);
}

void tigon_sim_unary(sim_where where, sim_op op, uint32_t d, uint32_t a, float value, int64_t n) {
  const int to = op == SIM_TO_BF16 || op == SIM_TO_F16 ? 2
                 : op == SIM_TO_I8                     ? 1
                                                       : 4,
            from = op == SIM_FROM_BF16 || op == SIM_FROM_F16 || op == SIM_TO_I8 ? 2 : 4;
  sim_instruction i = {.where = where, .op = op, .counted = true, .count = n, .value = value, .d = side_by_side(d, to)};
  if (a != SIM_NOTHING) i.a = side_by_side(a, from);
  issue_counted(&i);
}

void tigon_sim_steps(sim_where where, sim_op op, uint32_t d, uint32_t a, uint32_t b, v_steps s) {
  const int lanes = lanes_of_mask(tigon_sim_now, where);
  const int strides[] = {s.d_block, s.a_block, s.b_block, s.d_step, s.a_step, s.b_step};
  if (!lanes || !repeat_is_sane(where, s.repeat) || !strides_are_sane(where, strides, 6, 255)) return;
  sim_instruction i = {.where = where,
                       .op = op,
                       .repeat = s.repeat,
                       .lanes = lanes,
                       .d = stepped(d, (int64_t)s.d_block * UB_BLOCK, (int64_t)s.d_step * UB_BLOCK, 8, lanes),
                       .a = stepped(a, (int64_t)s.a_block * UB_BLOCK, (int64_t)s.a_step * UB_BLOCK, 8, lanes),
                       .b = stepped(b, (int64_t)s.b_block * UB_BLOCK, (int64_t)s.b_step * UB_BLOCK, 8, lanes)};
  issue(&i);
}

void tigon_sim_reduce(sim_where where, sim_op op, uint32_t d, uint32_t a, int repeat, int d_stride, int a_stride) {
  const int lanes = lanes_of_mask(tigon_sim_now, where);
  const int strides[] = {d_stride, a_stride};
  if (!lanes || !repeat_is_sane(where, repeat) || !strides_are_sane(where, strides, 2, UINT16_MAX)) return;
  sim_instruction i = {.where = where,
                       .op = op,
                       .repeat = repeat,
                       .lanes = lanes,
                       .d = stepped(d, 0, (int64_t)d_stride * 4, 1, 1),
                       .a = stepped(a, UB_BLOCK, (int64_t)a_stride * UB_BLOCK, 8, lanes)};
  issue(&i);
}

void tigon_sim_spread(sim_where where, uint32_t d, uint32_t a, int repeat) {
  if (!repeat_is_sane(where, repeat)) return;
  sim_instruction i = {.where = where,
                       .op = SIM_SPREAD,
                       .repeat = repeat,
                       .lanes = V_LANES,
                       .d = stepped(d, UB_BLOCK, 8 * UB_BLOCK, 8, V_LANES),
                       .a = stepped(a, 0, UB_BLOCK, 1, 8)};
  issue(&i);
}

void tigon_sim_compare(sim_where where, uint32_t mask, uint32_t a, float value) {
  sim_instruction i = {.where = where,
                       .op = SIM_COMPARE,
                       .repeat = 1,
                       .lanes = V_LANES,
                       .value = value,
                       .d = stepped(mask, 0, 0, 1, 2),
                       .a = stepped(a, UB_BLOCK, 0, 8, V_LANES)};
  issue(&i);
}

void tigon_sim_select(sim_where where, uint32_t d, uint32_t mask, uint32_t a, uint32_t b) {
  sim_instruction i = {.where = where,
                       .op = SIM_SELECT,
                       .repeat = 1,
                       .lanes = V_LANES,
                       .d = stepped(d, UB_BLOCK, 0, 8, V_LANES),
                       .a = stepped(a, UB_BLOCK, 0, 8, V_LANES),
                       .b = stepped(b, UB_BLOCK, 0, 8, V_LANES),
                       .c = stepped(mask, 0, 0, 1, 4)}; /* it takes 16 bytes, of which it uses 8 */
  /* The device counts 64 elements here, which leaves that as the mask. */
  tigon_sim_now->mask = 0;
  tigon_sim_now->mask_count = V_LANES;
  tigon_sim_now->mask_where = where;
  issue(&i);
}

/* ---- what they do ---- */

static float from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
static uint32_t to_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}
/* As the machine casts: what is no i32 becomes the nearest one, a NaN 0. */
static uint32_t to_i32(float value) {
  if (isnan(value)) return 0;
  if (value >= 0x1p31f) return INT32_MAX;
  return value < -0x1p31f ? (uint32_t)INT32_MIN : (uint32_t)(int32_t)nearbyintf(value);
}

/* n elements side by side. The arrays are the same or do not overlap. */
static void compute(const tigon_sim_modes *modes, sim_op op, float *d, const float *a, const float *b, float v,
                    int64_t n) {
#define EACH(expression) \
  for (int64_t i = 0; i < n; ++i) d[i] = (expression)
  switch (op) {
    case SIM_ADD: EACH(a[i] + b[i]); break;
    case SIM_SUB: EACH(a[i] - b[i]); break;
    case SIM_MUL: EACH(a[i] * b[i]); break;
    case SIM_DIV: EACH(tigon_sim_rounded(modes, op, a[i], b[i], a[i] / b[i])); break;
    case SIM_MAX: EACH(a[i] > b[i] || a[i] != a[i] ? a[i] : b[i]); break;
    case SIM_MIN: EACH(a[i] < b[i] || a[i] != a[i] ? a[i] : b[i]); break;
    case SIM_ADD_SCALAR: EACH(a[i] + v); break;
    case SIM_MUL_SCALAR: EACH(a[i] * v); break;
    case SIM_MAX_SCALAR: EACH(a[i] < v ? v : a[i]); break;
    case SIM_MIN_SCALAR: EACH(a[i] > v ? v : a[i]); break;
    case SIM_EXP: EACH(tigon_sim_rounded(modes, op, a[i], 0, expf(a[i]))); break;
    case SIM_LN: EACH(tigon_sim_rounded(modes, op, a[i], 0, logf(a[i]))); break;
    case SIM_SQRT: EACH(tigon_sim_rounded(modes, op, a[i], 0, sqrtf(a[i]))); break;
    case SIM_RSQRT: EACH(tigon_sim_rounded(modes, op, a[i], 0, 1 / sqrtf(a[i]))); break;
    case SIM_ABS: EACH(fabsf(a[i])); break;
    case SIM_DUPLICATE: EACH(v); break;
    case SIM_AND: EACH(from_bits(to_bits(a[i]) & to_bits(b[i]))); break;
    case SIM_NOT: EACH(from_bits(~to_bits(a[i]))); break;
    case SIM_TO_I32: EACH(from_bits(to_i32(a[i]))); break;
    case SIM_FROM_I32: EACH((float)(int32_t)to_bits(a[i])); break;
    default: break;
  }
#undef EACH
}

static int8_t to_i8(float value) {
  const float whole = isnan(value) ? 0 : nearbyintf(value);
  return (int8_t)(whole > 127 ? 127 : whole < -128 ? -128 : whole);
}

static void cast(sim_op op, void *d, const void *a, int64_t n) {
  float *f = d;
  uint16_t *h = d;
  int8_t *bytes = d;
  const float *from_f = a;
  const uint16_t *from_h = a;
  for (int64_t i = 0; i < n; ++i) switch (op) {
      case SIM_FROM_BF16: f[i] = tigon_f32_from_bf16(from_h[i]); break;
      case SIM_FROM_F16: f[i] = tigon_f32_from_f16(from_h[i]); break;
      case SIM_TO_BF16: h[i] = tigon_bf16_from_f32(from_f[i]); break;
      case SIM_TO_I8: bytes[i] = to_i8(tigon_f32_from_f16(from_h[i])); break;
      default: h[i] = tigon_f16_from_f32(from_f[i]); break;
    }
}

/* The machine adds in pairs, then pairs of pairs. */
static float reduce(sim_op op, const float *a, int lanes) {
  float tree[V_LANES];
  for (int i = 0; i < V_LANES; ++i) tree[i] = i < lanes ? a[i] : op == SIM_SUM ? 0 : -INFINITY;
  for (int half = V_LANES / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) {
      const float x = tree[2 * i], y = tree[2 * i + 1];
      tree[i] = op == SIM_SUM ? x + y : x > y || x != x ? x : y;
    }
  return tree[0];
}

static float *element(tigon_sim *sim, const sim_operand *o, int step, int block) {
  return (float *)(void *)(sim->ub + o->at + (int64_t)step * o->step + (int64_t)block * o->block);
}

static void run_step(tigon_sim *sim, const sim_instruction *i, int r) {
  float *d = element(sim, &i->d, r, 0);
  const float *a = element(sim, &i->a, r, 0);
  const uint32_t *bits = (const uint32_t *)(const void *)(sim->ub + i->c.at);
  switch (i->op) {
    case SIM_SUM:
    case SIM_MAXIMUM: *d = reduce(i->op, a, i->lanes); return;
    case SIM_SPREAD:
      for (int k = 0; k < V_LANES; ++k) d[k] = a[k / 8];
      return;
    case SIM_COMPARE:
      memset(d, 0, 8);
      for (int k = 0; k < V_LANES; ++k)
        if (a[k] < i->value) ((uint8_t *)d)[k / 8] |= (uint8_t)(1u << k % 8);
      return;
    case SIM_SELECT:
      for (int k = 0; k < V_LANES; ++k) d[k] = bits[k / 32] >> k % 32 & 1 ? a[k] : element(sim, &i->b, 0, 0)[k];
      return;
    default: break;
  }
  for (int k = 0; k < 8 && 8 * k < i->lanes; ++k)
    compute(&sim->modes, i->op, element(sim, &i->d, r, k), element(sim, &i->a, r, k), element(sim, &i->b, r, k), 0,
            i->lanes - 8 * k < 8 ? i->lanes - 8 * k : 8);
}

bool tigon_sim_run_vector(tigon_sim *sim, const sim_instruction *i) {
  for (int mark = 0; mark < 2; ++mark)
    if (!touch_operand(sim, i, &i->b, false, mark) ||
        !(i->op == SIM_GATHER ? touch_gathered(sim, i, mark) : touch_operand(sim, i, &i->a, false, mark)) ||
        !touch_operand(sim, i, &i->c, false, mark) || !touch_operand(sim, i, &i->d, true, mark))
      return false;
  if (!i->counted) {
    for (int r = 0; r < i->repeat; ++r) run_step(sim, i, r);
    return true;
  }
  void *d = sim->ub + i->d.at;
  const void *a = sim->ub + i->a.at, *b = sim->ub + i->b.at;
  if (i->op == SIM_GATHER)
    for (int64_t e = 0; e < i->count; ++e) memcpy((char *)d + 4 * e, sim->ub + gathered(sim, i, e), 4);
  else if (i->op >= SIM_FROM_BF16 && i->op <= SIM_TO_I8)
    cast(i->op, d, a, i->count);
  else
    compute(&sim->modes, i->op, d, a, b, i->value, i->count);
  return true;
}
