/* The intrinsics of a vector core in plain C, under kernels that were compiled over ascend/aicore_device.h. Loads, vector work
 * and stores are separate queues. The kernel's code is the scalar pipe. The work that it hands over runs only when it must, in
 * one of several orders ($STANDIN_ORDER: eager, v, mte2, mte3, random). So a missing wait shows as a wrong result. Within a
 * queue, calls run in order. With $STANDIN_FLUSH arithmetic takes denormal numbers for 0 and makes none. A fault ends the launch
 * with a sentence: a flag set again before its wait has taken it, a wait that nobody ends, a flag left set, an address outside
 * of UB or of the device's memory, one off its boundary, a repeat count of 0, a size that a transfer cannot take. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../fake/acl.h"
#include "core/half.h"
#include "intrinsics.h"

enum { UB_BYTES = 188160, GUARD = 4096, BLOCK = 32, STEP_BYTES = 256, IDS = 8, MOST_ARGUMENTS = 4096 };

/* ---- a core ---- */

typedef struct step step;
typedef void action(const step *s);

struct step {
  action *run;
  const char *name;
  char *d, *a, *b;
  int size_d, size_a, size_b; /* bytes of an element; 0: no such operand */
  int repeat, blocks[3], steps[3];
  float (*binary)(float a, float b);
  float value;
  bool count;
  uint64_t high, low; /* the mask, or in count mode how many elements */
  int64_t bursts, bytes, right;
  uint32_t fill;
  pipe_t from, to;
  int id;
};

typedef struct queue {
  step *steps;
  int64_t begin, end, room;
} queue;

static _Alignas(64) char ub[UB_BYTES + GUARD];
static queue queues[STANDIN_PIPES];
static bool flags[STANDIN_PIPES][STANDIN_PIPES][IDS];
static bool counting;
static uint64_t mask_high, mask_low, fill;
static int64_t block, blocks;
static const fake_acl_block *memory;
static int memory_count;
static const char *kernel;
static char *sentence;
static jmp_buf stop;
static uint32_t random_state;
static enum { EAGER, FIRST_V, FIRST_MTE2, FIRST_MTE3, RANDOM } order;

static const char *const pipe_names[] = {"S", "V", "MTE2", "MTE3"};

__attribute__((noreturn, format(printf, 1, 2))) static void fault(const char *format, ...) {
  va_list list;
  va_start(list, format);
  const int n = snprintf(sentence, FAKE_ACL_SENTENCE, "%s, block %lld: ", kernel, (long long)block);
  vsnprintf(sentence + n, (size_t)(FAKE_ACL_SENTENCE - n), format, list);
  va_end(list);
  longjmp(stop, 1);
}

static step *hand_over(pipe_t pipe) {
  queue *q = &queues[pipe];
  if (q->end == q->room) {
    q->room = q->room ? 2 * q->room : 1024;
    q->steps = realloc(q->steps, (size_t)q->room * sizeof *q->steps);
    if (!q->steps) abort();
  }
  step *s = &q->steps[q->end++];
  memset(s, 0, sizeof *s);
  return s;
}

/* ---- flags, and which queue goes on ---- */

static void raise_flag(pipe_t from, pipe_t to, int id) {
  if (flags[from][to][id])
    fault("flag %s->%s id %d is set again before its wait has taken it", pipe_names[from], pipe_names[to], id);
  flags[from][to][id] = true;
}
static void do_set(const step *s) { raise_flag(s->from, s->to, s->id); }
static void do_wait(const step *s) { flags[s->from][s->to][s->id] = false; }

/* Runs the first call of a queue; false when it has none or waits. */
static bool advance(pipe_t pipe) {
  queue *q = &queues[pipe];
  if (q->begin == q->end) return false;
  const step s = q->steps[q->begin];
  if (s.run == do_wait && !flags[s.from][s.to][s.id]) return false;
  if (++q->begin == q->end) q->begin = q->end = 0;
  s.run(&s);
  return true;
}
static bool advance_one(void) {
  static const pipe_t turns[][3] = {{PIPE_MTE2, PIPE_V, PIPE_MTE3},
                                    {PIPE_V, PIPE_MTE2, PIPE_MTE3},
                                    {PIPE_MTE2, PIPE_V, PIPE_MTE3},
                                    {PIPE_MTE3, PIPE_MTE2, PIPE_V}};
  int first = 0;
  if (order == RANDOM) first = (int)((random_state = random_state * 1664525u + 1013904223u) >> 16) % 3;
  for (int i = 0; i < 3; ++i)
    if (advance(turns[order == RANDOM ? 0 : order][(first + i) % 3])) return true;
  return false;
}
static void handed_over(void) {
  while (order == EAGER && advance_one()) continue;
}
static void drain(void) {
  while (advance_one()) continue;
  for (int p = 0; p < STANDIN_PIPES; ++p) {
    const queue *q = &queues[p];
    if (q->begin == q->end) continue;
    const step *s = &q->steps[q->begin];
    fault("%s waits for flag %s->%s id %d, which nobody sets", pipe_names[p], pipe_names[s->from], pipe_names[s->to],
          s->id);
  }
}

static void check_flag(pipe_t from, pipe_t to, int id) {
  if (from >= PIPE_ALL || to >= PIPE_ALL || from == to || id < 0 || id >= IDS)
    fault("there is no flag id %d from pipe %d to pipe %d", id, (int)from, (int)to);
}
static void flag_step(action *run, pipe_t at, pipe_t from, pipe_t to, int id) {
  step *s = hand_over(at);
  s->run = run;
  s->from = from;
  s->to = to;
  s->id = id;
  handed_over();
}
void set_flag(pipe_t from, pipe_t to, event_t id) {
  check_flag(from, to, (int)id);
  if (from == PIPE_S)
    raise_flag(from, to, (int)id);
  else
    flag_step(do_set, from, from, to, (int)id);
  handed_over();
}
void wait_flag(pipe_t from, pipe_t to, event_t id) {
  check_flag(from, to, (int)id);
  if (to != PIPE_S) {
    flag_step(do_wait, to, from, to, (int)id);
    return;
  }
  while (!flags[from][to][id] && advance_one()) continue;
  if (!flags[from][to][id]) fault("S waits for flag %s->S id %d, which nobody sets", pipe_names[from], (int)id);
  flags[from][to][id] = false;
}
void pipe_barrier(pipe_t pipe) {
  if (pipe == PIPE_S) fault("pipe_barrier(PIPE_S) is an error of the hardware");
  if (pipe == PIPE_ALL) drain();
}

/* ---- registers and memory ---- */

uint64_t get_imm(uint64_t ub_address) { return (uint64_t)(uintptr_t)(ub + ub_address); }
int64_t get_block_idx(void) { return block; }
int64_t get_block_num(void) { return blocks; }
void set_atomic_none(void) {}
void set_mask_count(void) { counting = true; }
void set_mask_norm(void) { counting = false; }
void set_vector_mask(uint64_t high, uint64_t low) {
  mask_high = high;
  mask_low = low;
}
void set_mov_pad_val(uint64_t bits) { fill = bits; }

static void in_ub(const step *s, const char *at, int64_t bytes) {
  if (at < ub || at + bytes > ub + UB_BYTES)
    fault("%s: %lld bytes at %lld of UB", s->name, (long long)bytes, (long long)(at - ub));
}
static void aligned(const step *s, const char *at, int to) {
  if ((uintptr_t)at % (unsigned)to) fault("%s: an address of UB is not on %d bytes", s->name, to);
}
static void in_memory(const step *s, const char *at, int64_t bytes) {
  for (int i = 0; i < memory_count; ++i)
    if (at >= memory[i].start && at + bytes <= memory[i].start + memory[i].bytes) return;
  fault("%s: %lld bytes outside of the device's memory", s->name, (long long)bytes);
}

static void do_load(const step *s) {
  const int64_t fills = s->right * s->size_d, pitch = (s->bytes + fills + BLOCK - 1) / BLOCK * BLOCK;
  in_memory(s, s->a, s->bursts * s->bytes);
  in_ub(s, s->d, s->bursts * pitch);
  for (int64_t i = 0; i < s->bursts; ++i) {
    char *to = s->d + i * pitch;
    memcpy(to, s->a + i * s->bytes, (size_t)s->bytes);
    for (int64_t k = 0; k < s->right; ++k) memcpy(to + s->bytes + k * s->size_d, &s->fill, (size_t)s->size_d);
  }
}
static void do_store(const step *s) {
  const int64_t pitch = (s->bytes + BLOCK - 1) / BLOCK * BLOCK;
  in_memory(s, s->d, s->bursts * s->bytes);
  in_ub(s, s->a, (s->bursts - 1) * pitch + s->bytes);
  for (int64_t i = 0; i < s->bursts; ++i) memcpy(s->d + i * s->bytes, s->a + i * pitch, (size_t)s->bytes);
}

#define COPY(call, action, pipe, in_ub_, size)                                                                  \
  void call(void *to, void *from, uint8_t stream, uint16_t bursts, uint32_t bytes, uint8_t left, uint8_t right, \
            uint32_t from_gap, uint32_t to_gap) {                                                               \
    step *s = hand_over(pipe);                                                                                  \
    *s = (step){action,         #call,          to,                                                             \
                from,           .size_d = size, .bursts = bursts,                                               \
                .bytes = bytes, .right = right, .fill = (uint32_t)fill};                                        \
    aligned(s, s->in_ub_, BLOCK);                                                                               \
    if (bursts < 1 || bursts > 4095 || bytes < 1 || bytes > 2097151 || bytes % size || right * size > BLOCK)    \
      fault(#call ": %d bursts of %u bytes and %d more elements", bursts, bytes, right);                        \
    if (stream || left || from_gap || to_gap) fault(#call ": a stream, a gap or elements before it");           \
    handed_over();                                                                                              \
  }
COPY(copy_gm_to_ubuf_align_b32, do_load, PIPE_MTE2, d, 4)
COPY(copy_gm_to_ubuf_align_b16, do_load, PIPE_MTE2, d, 2)
COPY(copy_ubuf_to_gm_align_b32, do_store, PIPE_MTE3, a, 4)
COPY(copy_ubuf_to_gm_align_b16, do_store, PIPE_MTE3, a, 2)
COPY(copy_ubuf_to_gm_align_b8, do_store, PIPE_MTE3, a, 1)

/* ---- the vector unit: steps of 256 bytes of the widest operand ---- */

static char *lane_at(const step *s, char *base, int size, int operand, int64_t r, int64_t lane) {
  const int64_t of_block = BLOCK / size;
  char *at = base + BLOCK * (r * s->steps[operand] + lane / of_block * s->blocks[operand]) + lane % of_block * size;
  in_ub(s, at, size);
  return at;
}
static bool takes_part(const step *s, int64_t lanes, int64_t r, int64_t lane) {
  if (s->count) return r * lanes + lane < (int64_t)s->low;
  return (lane < 64 ? s->low >> lane : s->high >> (lane - 64)) & 1;
}
static int64_t steps_of(const step *s, int64_t lanes) {
  return s->count ? ((int64_t)s->low + lanes - 1) / lanes : s->repeat;
}

static float number(const char *at) {
  float f;
  memcpy(&f, at, sizeof f);
  return f;
}
static uint16_t bits16(const char *at) {
  uint16_t h;
  memcpy(&h, at, sizeof h);
  return h;
}

typedef void lane_action(const step *s, char *d, const char *a, const char *b);

static void each_lane(const step *s, lane_action *act) {
  const int widest = s->size_d > s->size_a ? s->size_d : s->size_a;
  const int64_t lanes = STEP_BYTES / widest;
  for (int64_t r = 0; r < steps_of(s, lanes); ++r)
    for (int64_t lane = 0; lane < lanes; ++lane) {
      if (!takes_part(s, lanes, r, lane)) continue;
      const char *a = s->a ? lane_at(s, s->a, s->size_a, 1, r, lane) : NULL;
      const char *b = s->b ? lane_at(s, s->b, s->size_b, 2, r, lane) : NULL;
      act(s, lane_at(s, s->d, s->size_d, 0, r, lane), a, b);
    }
}

static step *vector_step(action *run, const char *name, const void *d, const void *a, const void *b, int repeat) {
  step *s = hand_over(PIPE_V);
  *s = (step){run, name,   (char *)(uintptr_t)d, (char *)(uintptr_t)a, (char *)(uintptr_t)b, 4, 4,
              4,   repeat, .count = counting,    .high = mask_high,    .low = mask_low};
  if (repeat < 1) fault("%s: a repeat count of %d", name, repeat);
  if (counting && repeat != 1) fault("%s: a repeat count of %d in count mode", name, repeat);
  if (a) aligned(s, a, BLOCK);
  if (b) aligned(s, b, BLOCK);
  return s;
}

static float op_add(float a, float b) { return a + b; }
static float op_sub(float a, float b) { return a - b; }
static float op_mul(float a, float b) { return a * b; }
static float op_div(float a, float b) { return a / b; }
static float op_max(float a, float b) { return a != a ? a : b != b ? b : a > b ? a : b; }
static float op_min(float a, float b) { return a != a ? a : b != b ? b : a < b ? a : b; }
static float op_exp(float a, float b) { return (void)b, (float)exp((double)a); }
static float op_ln(float a, float b) { return (void)b, (float)log((double)a); }
static float op_sqrt(float a, float b) { return (void)b, sqrtf(a); }
static float op_rsqrt(float a, float b) { return (void)b, (float)(1 / sqrt((double)a)); }
static float op_abs(float a, float b) { return (void)b, fabsf(a); }

static bool flushes;

static float flushed(float f) { return flushes && fabsf(f) < 0x1p-126f ? copysignf(0, f) : f; }
static void lane_float(const step *s, char *d, const char *a, const char *b) {
  float f = s->value;
  if (s->binary) f = flushed(s->binary(flushed(number(a)), flushed(b ? number(b) : s->value)));
  memcpy(d, &f, sizeof f);
}
static void lane_and(const step *s, char *d, const char *a, const char *b) {
  const uint16_t h = (uint16_t)(bits16(a) & bits16(b));
  (void)s;
  memcpy(d, &h, sizeof h);
}
static void lane_not(const step *s, char *d, const char *a, const char *b) {
  const uint16_t h = (uint16_t)~bits16(a);
  (void)s, (void)b;
  memcpy(d, &h, sizeof h);
}
static void lane_to_i32(const step *s, char *d, const char *a, const char *b) {
  const float f = nearbyintf(number(a));
  const int32_t i = f != f ? 0 : f >= 0x1p31f ? INT32_MAX : f < -0x1p31f ? INT32_MIN : (int32_t)f;
  (void)s, (void)b;
  memcpy(d, &i, sizeof i);
}
static void lane_from_i32(const step *s, char *d, const char *a, const char *b) {
  int32_t i;
  memcpy(&i, a, sizeof i);
  const float f = (float)i;
  (void)s, (void)b;
  memcpy(d, &f, sizeof f);
}
static void lane_to_i8(const step *s, char *d, const char *a, const char *b) {
  const float f = nearbyintf(tigon_f32_from_f16(bits16(a)));
  (void)s, (void)b;
  *d = (char)(f != f ? 0 : f > 127 ? 127 : f < -128 ? -128 : (int)f);
}
#define LANE_CAST(name, from, convert, type)                               \
  static void name(const step *s, char *d, const char *a, const char *b) { \
    const type x = convert(from(a));                                       \
    (void)s, (void)b;                                                      \
    memcpy(d, &x, sizeof x);                                               \
  }
LANE_CAST(lane_from_bf16, bits16, tigon_f32_from_bf16, float)
LANE_CAST(lane_from_f16, bits16, tigon_f32_from_f16, float)
LANE_CAST(lane_to_bf16, number, tigon_bf16_from_f32, uint16_t)
LANE_CAST(lane_to_f16, number, tigon_f16_from_f32, uint16_t)

static void do_float(const step *s) { each_lane(s, lane_float); }
static void do_and(const step *s) { each_lane(s, lane_and); }
static void do_not(const step *s) { each_lane(s, lane_not); }
static void do_to_i32(const step *s) { each_lane(s, lane_to_i32); }
static void do_from_i32(const step *s) { each_lane(s, lane_from_i32); }
static void do_to_i8(const step *s) { each_lane(s, lane_to_i8); }
static void do_from_bf16(const step *s) { each_lane(s, lane_from_bf16); }
static void do_from_f16(const step *s) { each_lane(s, lane_from_f16); }
static void do_to_bf16(const step *s) { each_lane(s, lane_to_bf16); }
static void do_to_f16(const step *s) { each_lane(s, lane_to_f16); }

static void strides(step *s, int d_block, int a_block, int b_block, int d_step, int a_step, int b_step) {
  const int block_strides[] = {d_block, a_block, b_block}, step_strides[] = {d_step, a_step, b_step};
  memcpy(s->blocks, block_strides, sizeof block_strides);
  memcpy(s->steps, step_strides, sizeof step_strides);
  aligned(s, s->d, BLOCK);
}

#define BINARY(call, type, action, op)                                                                    \
  void call(type *d, type *a, type *b, uint8_t repeat, uint8_t d_block, uint8_t a_block, uint8_t b_block, \
            uint8_t d_step, uint8_t a_step, uint8_t b_step) {                                             \
    step *s = vector_step(action, #call, d, a, b, repeat);                                                \
    s->size_d = s->size_a = s->size_b = (int)sizeof *d;                                                   \
    s->binary = op;                                                                                       \
    strides(s, d_block, a_block, b_block, d_step, a_step, b_step);                                        \
    handed_over();                                                                                        \
  }
BINARY(vadd, float, do_float, op_add)
BINARY(vsub, float, do_float, op_sub)
BINARY(vmul, float, do_float, op_mul)
BINARY(vdiv, float, do_float, op_div)
BINARY(vmax, float, do_float, op_max)
BINARY(vmin, float, do_float, op_min)
BINARY(vand, uint16_t, do_and, NULL)

#define SCALAR(call, op)                                                                                          \
  void call(float *d, float *a, float value, uint8_t repeat, uint16_t d_block, uint16_t a_block, uint16_t d_step, \
            uint16_t a_step) {                                                                                    \
    step *s = vector_step(do_float, #call, d, a, NULL, repeat);                                                   \
    s->binary = op;                                                                                               \
    s->value = value;                                                                                             \
    strides(s, d_block, a_block, 0, d_step, a_step, 0);                                                           \
    handed_over();                                                                                                \
  }
SCALAR(vadds, op_add)
SCALAR(vmuls, op_mul)
SCALAR(vmaxs, op_max)
SCALAR(vmins, op_min)

#define UNARY(call, to, of, action, op)                                                                           \
  void call(to *d, of *a, uint8_t repeat, uint16_t d_block, uint16_t a_block, uint16_t d_step, uint16_t a_step) { \
    step *s = vector_step(action, #call, d, a, NULL, repeat);                                                     \
    s->size_d = (int)sizeof *d;                                                                                   \
    s->size_a = (int)sizeof *a;                                                                                   \
    s->binary = op;                                                                                               \
    strides(s, d_block, a_block, 0, d_step, a_step, 0);                                                           \
    handed_over();                                                                                                \
  }
UNARY(vexp, float, float, do_float, op_exp)
UNARY(vln, float, float, do_float, op_ln)
UNARY(vsqrt, float, float, do_float, op_sqrt)
UNARY(vrsqrt, float, float, do_float, op_rsqrt)
UNARY(vabs, float, float, do_float, op_abs)
UNARY(vnot, uint16_t, uint16_t, do_not, NULL)
UNARY(vconv_f322s32r, int32_t, float, do_to_i32, NULL)
UNARY(vconv_s322f32, float, int32_t, do_from_i32, NULL)
UNARY(vconv_bf162f32, float, bfloat16_t, do_from_bf16, NULL)
UNARY(vconv_f162f32, float, half, do_from_f16, NULL)
UNARY(vconv_f322bf16r, bfloat16_t, float, do_to_bf16, NULL)
UNARY(vconv_f322f16r, half, float, do_to_f16, NULL)
UNARY(vconv_f162s8r, int8_t, half, do_to_i8, NULL)

void vector_dup(float *d, float value, uint8_t repeat, uint16_t d_block, uint16_t a_block, uint16_t d_step,
                uint16_t a_step) {
  step *s = vector_step(do_float, "vector_dup", d, NULL, NULL, repeat);
  s->value = value;
  strides(s, d_block, a_block, 0, d_step, a_step, 0);
  handed_over();
}

static void lane_gather(const step *s, char *d, const char *a, const char *b) {
  uint32_t offset;
  (void)b;
  memcpy(&offset, a, sizeof offset);
  const char *from = s->b + offset;
  if (offset % 4) fault("vgather: an offset of %u bytes", offset);
  in_ub(s, from, 4);
  memcpy(d, from, 4);
}
static void do_gather(const step *s) {
  step lanes = *s;
  for (int64_t r = 0; r < steps_of(s, 64); ++r)
    for (int64_t lane = 0; lane < 64; ++lane)
      if (takes_part(s, 64, r, lane))
        lane_gather(s, lane_at(&lanes, s->d, 4, 0, r, lane), lane_at(&lanes, s->a, 4, 1, r, lane), NULL);
}
void vgather(uint32_t *d, uint32_t *offsets, uint64_t base, uint16_t d_step, uint8_t repeat) {
  step *s = vector_step(do_gather, "vgather", d, offsets, (const void *)(uintptr_t)base, repeat);
  strides(s, 1, 1, 1, d_step, 8, 0);
  handed_over();
}

/* In a binary tree over the 64 lanes, those that take no part left out. */
static void do_reduce(const step *s) {
  for (int64_t r = 0; r < s->repeat; ++r) {
    float values[64];
    bool there[64];
    for (int64_t lane = 0; lane < 64; ++lane) {
      there[lane] = takes_part(s, 64, r, lane);
      if (there[lane]) values[lane] = number(lane_at(s, s->a, 4, 1, r, lane));
    }
    for (int apart = 1; apart < 64; apart *= 2)
      for (int i = 0; i < 64; i += 2 * apart) {
        if (there[i] && there[i + apart]) values[i] = s->binary(values[i], values[i + apart]);
        if (!there[i] && there[i + apart]) values[i] = values[i + apart];
        there[i] = there[i] || there[i + apart];
      }
    char *to = s->d + r * s->steps[0] * 4;
    in_ub(s, to, 4);
    if (there[0]) memcpy(to, &values[0], 4);
  }
}
static void reduce(const char *name, float (*op)(float, float), float *d, float *a, int repeat, int d_step, int a_block,
                   int a_step) {
  step *s = vector_step(do_reduce, name, d, a, NULL, repeat);
  if (counting) fault("%s: in count mode", name);
  aligned(s, (const char *)d, 4);
  s->binary = op;
  s->blocks[1] = a_block;
  s->steps[0] = d_step;
  s->steps[1] = a_step;
  handed_over();
}
void vcadd(float *d, float *a, uint8_t repeat, uint16_t d_step, uint16_t a_block, uint16_t a_step, int mode) {
  if (mode) fault("vcadd: mode %d", mode);
  reduce("vcadd", op_add, d, a, repeat, d_step, a_block, a_step);
}
void vcmax(float *d, float *a, uint8_t repeat, uint16_t d_step, uint16_t a_block, uint16_t a_step, Order_t what) {
  if (what != ONLY_VALUE) fault("vcmax: order %d", (int)what);
  reduce("vcmax", op_max, d, a, repeat, d_step, a_block, a_step);
}

static void do_spread(const step *s) {
  for (int64_t i = 0; i < 8 * (int64_t)s->repeat; ++i) {
    char *to = s->d + BLOCK * (i / 8 * s->steps[0] + i % 8 * s->blocks[0]);
    in_ub(s, s->a + 4 * i, 4);
    in_ub(s, to, BLOCK);
    for (int k = 0; k < 8; ++k) memcpy(to + 4 * k, s->a + 4 * i, 4);
  }
}
void vbrcb(uint32_t *d, uint32_t *a, uint16_t d_block, uint16_t d_step, uint8_t repeat) {
  step *s = vector_step(do_spread, "vbrcb", d, a, NULL, repeat);
  strides(s, d_block, 0, 0, d_step, 0, 0);
  handed_over();
}

/* ---- a launch ---- */

static void choose_order(void) {
  static const char *const names[] = {"eager", "v", "mte2", "mte3", "random"};
  const char *wanted = getenv("STANDIN_ORDER");
  for (int i = 0; i <= (int)RANDOM; ++i)
    if (wanted && strcmp(wanted, names[i]) == 0) order = i;
  flushes = getenv("STANDIN_FLUSH");
}

/* As large as any kernel's struct of arguments: what a kernel takes by value lies at its start, as long as both lie in memory. */
typedef struct argument_bytes {
  uint64_t words[MOST_ARGUMENTS / 8];
} argument_bytes;

static void run_block(void *symbol, const argument_bytes *arguments) {
  void (*call)(argument_bytes);
  *(void **)&call = symbol;
  memset(ub, 0xff, sizeof ub);
  memset(flags, 0, sizeof flags);
  for (int p = 0; p < STANDIN_PIPES; ++p) queues[p].begin = queues[p].end = 0;
  counting = true; /* registers come as the launch before left them */
  mask_high = mask_low = fill = 3;
  call(*arguments);
  drain();
  for (int i = 0; i < STANDIN_PIPES * STANDIN_PIPES * IDS; ++i)
    if ((&flags[0][0][0])[i]) {
      const int from = i / IDS / STANDIN_PIPES, to = i / IDS % STANDIN_PIPES;
      fault("flag %s->%s id %d is left set", pipe_names[from], pipe_names[to], i % IDS);
    }
  for (int i = 0; i < GUARD; ++i)
    if (ub[UB_BYTES + i] != (char)0xff) fault("the scalar pipe wrote beyond UB");
}

bool fake_acl_run(const fake_acl_launch *launch, double *microseconds, char *text) {
  argument_bytes arguments;
  memset(&arguments, 0xff, sizeof arguments);
  sentence = text;
  kernel = launch->name;
  memory = launch->memory;
  memory_count = launch->memory_count;
  blocks = launch->blocks;
  *microseconds = 5;
  choose_order();
  if (setjmp(stop)) return false;
  block = 0;
  if (launch->bytes <= 16 || launch->bytes > sizeof arguments) fault("%zu bytes of arguments", launch->bytes);
  memcpy(&arguments, launch->arguments, launch->bytes);
  for (block = 0; block < blocks; ++block) run_block(launch->symbol, &arguments);
  return true;
}
