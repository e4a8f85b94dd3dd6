/* ascend/aicore.h on the simulator: every call becomes an instruction that knows where it stands in the source. */
#ifndef TIGON_ASCEND_AICORE_SIM_H
#define TIGON_ASCEND_AICORE_SIM_H

#include "ascend/sim/sim.h"

/* ---- what the simulator executes ---- */

typedef struct sim_where {
  const char *what, *file;
  int line;
} sim_where;

/* clang-format off */
typedef enum sim_op {
  SIM_ADD, SIM_SUB, SIM_MUL, SIM_DIV, SIM_MAX, SIM_MIN,
  SIM_ADD_SCALAR, SIM_MUL_SCALAR, SIM_MAX_SCALAR, SIM_MIN_SCALAR,
  SIM_EXP, SIM_LN, SIM_SQRT, SIM_RSQRT, SIM_ABS, SIM_DUPLICATE, SIM_AND, SIM_NOT, SIM_TO_I32, SIM_FROM_I32, SIM_GATHER,
  SIM_FROM_BF16, SIM_FROM_F16, SIM_TO_BF16, SIM_TO_F16, SIM_TO_I8,
  SIM_SUM, SIM_MAXIMUM, SIM_SPREAD, SIM_COMPARE, SIM_SELECT,
  SIM_OPS
} sim_op;
/* clang-format on */

#define SIM_NOTHING UINT32_MAX /* in place of an operand's address */

uint32_t tigon_sim_alloc(sim_where where, ub_arena *ub, int64_t bytes);
void tigon_sim_set(sim_where where, sim_pipe from, sim_pipe to, int id);
void tigon_sim_wait(sim_where where, sim_pipe from, sim_pipe to, int id);
void tigon_sim_barrier(sim_where where, sim_pipe pipe);
int64_t tigon_sim_block_index(void);
int64_t tigon_sim_block_count(void);
float tigon_sim_read(sim_where where, uint32_t at);
void tigon_sim_write(sim_where where, uint32_t at, float value);
int32_t tigon_sim_read_i32(sim_where where, uint32_t at);
void tigon_sim_write_i32(sim_where where, uint32_t at, int32_t value);
void tigon_sim_load(sim_where where, uint32_t to, char *from, int64_t rows, int64_t cols, int size);
void tigon_sim_store(sim_where where, char *to, uint32_t from, int64_t rows, int64_t cols, int size);
void tigon_sim_binary(sim_where where, sim_op op, uint32_t d, uint32_t a, uint32_t b, int64_t n);
void tigon_sim_steps(sim_where where, sim_op op, uint32_t d, uint32_t a, uint32_t b, v_steps steps);
void tigon_sim_unary(sim_where where, sim_op op, uint32_t d, uint32_t a, float value, int64_t n);
void tigon_sim_mask(sim_where where, int lanes);
void tigon_sim_reduce(sim_where where, sim_op op, uint32_t d, uint32_t a, int repeat, int d_stride, int a_stride);
void tigon_sim_spread(sim_where where, uint32_t d, uint32_t a, int repeat);
void tigon_sim_compare(sim_where where, uint32_t mask, uint32_t a, float value);
void tigon_sim_select(sim_where where, uint32_t d, uint32_t mask, uint32_t a, uint32_t b);

/* ---- the dialect ---- */

#define AICORE static inline
#define AICORE_KERNEL(name, arguments)                           \
  static void name##_body(ub_arena *ub, const arguments *a);     \
  void name(ub_arena *ub, const void *a) { name##_body(ub, a); } \
  static void name##_body(__attribute__((unused)) ub_arena *ub, const arguments *a)

typedef char *gm_ptr;
typedef struct ub_f32 {
  uint32_t at; /* bytes from the start of UB */
} ub_f32;
typedef struct ub_bf16 {
  uint32_t at;
} ub_bf16;
typedef struct ub_f16 {
  uint32_t at;
} ub_f16;
typedef struct ub_i8 {
  uint32_t at;
} ub_i8;

static inline ub_f32 ub_at_f32(ub_f32 x, int64_t i) { return (ub_f32){x.at + (uint32_t)i * 4}; }
static inline ub_bf16 ub_at_bf16(ub_bf16 x, int64_t i) { return (ub_bf16){x.at + (uint32_t)i * 2}; }
static inline ub_f16 ub_at_f16(ub_f16 x, int64_t i) { return (ub_f16){x.at + (uint32_t)i * 2}; }
static inline ub_i8 ub_at_i8(ub_i8 x, int64_t i) { return (ub_i8){x.at + (uint32_t)i}; }
#define ub_as_f32(x) ((ub_f32){(x).at})
#define ub_as_bf16(x) ((ub_bf16){(x).at})
#define ub_as_f16(x) ((ub_f16){(x).at})
#define ub_as_i8(x) ((ub_i8){(x).at})

#define SIM_HERE(what) ((sim_where){what, __FILE__, __LINE__})

#define ub_alloc_f32(ub, n) ((ub_f32){tigon_sim_alloc(SIM_HERE("ub_alloc_f32"), ub, (n)*4)})
#define ub_alloc_bf16(ub, n) ((ub_bf16){tigon_sim_alloc(SIM_HERE("ub_alloc_bf16"), ub, (n)*2)})
#define ub_alloc_f16(ub, n) ((ub_f16){tigon_sim_alloc(SIM_HERE("ub_alloc_f16"), ub, (n)*2)})

#define sync_set(from, to, id) tigon_sim_set(SIM_HERE("sync_set"), from, to, id)
#define sync_wait(from, to, id) tigon_sim_wait(SIM_HERE("sync_wait"), from, to, id)
#define sync_pipe(pipe) tigon_sim_barrier(SIM_HERE("sync_pipe"), pipe)

#define block_index() tigon_sim_block_index()
#define block_count() tigon_sim_block_count()
#define s_read_f32(a, i) tigon_sim_read(SIM_HERE("s_read_f32"), ub_at_f32(a, i).at)
#define s_write_f32(a, i, value) tigon_sim_write(SIM_HERE("s_write_f32"), ub_at_f32(a, i).at, value)
#define s_read_i32(a, i) tigon_sim_read_i32(SIM_HERE("s_read_i32"), ub_at_f32(a, i).at)
#define s_write_i32(a, i, value) tigon_sim_write_i32(SIM_HERE("s_write_i32"), ub_at_f32(a, i).at, value)

#define load_f32(d, gm, rows, cols) tigon_sim_load(SIM_HERE("load_f32"), (d).at, gm, rows, cols, 4)
#define load_bf16(d, gm, rows, cols) tigon_sim_load(SIM_HERE("load_bf16"), (d).at, gm, rows, cols, 2)
#define load_f16(d, gm, rows, cols) tigon_sim_load(SIM_HERE("load_f16"), (d).at, gm, rows, cols, 2)
#define store_f32(gm, s, rows, cols) tigon_sim_store(SIM_HERE("store_f32"), gm, (s).at, rows, cols, 4)
#define store_bf16(gm, s, rows, cols) tigon_sim_store(SIM_HERE("store_bf16"), gm, (s).at, rows, cols, 2)
#define store_f16(gm, s, rows, cols) tigon_sim_store(SIM_HERE("store_f16"), gm, (s).at, rows, cols, 2)
#define store_i8(gm, s, rows, cols) tigon_sim_store(SIM_HERE("store_i8"), gm, sim_i8(s), rows, cols, 1)

/* The types are checked by taking each handle as what it must be. */
static inline uint32_t sim_f32(ub_f32 x) { return x.at; }
static inline uint32_t sim_bf16(ub_bf16 x) { return x.at; }
static inline uint32_t sim_f16(ub_f16 x) { return x.at; }
static inline uint32_t sim_i8(ub_i8 x) { return x.at; }

#define SIM_BINARY(what, op, d, a, b, n) tigon_sim_binary(SIM_HERE(what), op, sim_f32(d), sim_f32(a), sim_f32(b), n)
#define v_add_f32(d, a, b, n) SIM_BINARY("v_add_f32", SIM_ADD, d, a, b, n)
#define v_sub_f32(d, a, b, n) SIM_BINARY("v_sub_f32", SIM_SUB, d, a, b, n)
#define v_mul_f32(d, a, b, n) SIM_BINARY("v_mul_f32", SIM_MUL, d, a, b, n)
#define v_div_f32(d, a, b, n) SIM_BINARY("v_div_f32", SIM_DIV, d, a, b, n)
#define v_max_f32(d, a, b, n) SIM_BINARY("v_max_f32", SIM_MAX, d, a, b, n)
#define v_min_f32(d, a, b, n) SIM_BINARY("v_min_f32", SIM_MIN, d, a, b, n)

#define SIM_STEPS(what, op, d, a, b, steps) \
  tigon_sim_steps(SIM_HERE(what), op, sim_f32(d), sim_f32(a), sim_f32(b), steps)
#define v_add_r_f32(d, a, b, steps) SIM_STEPS("v_add_r_f32", SIM_ADD, d, a, b, steps)
#define v_sub_r_f32(d, a, b, steps) SIM_STEPS("v_sub_r_f32", SIM_SUB, d, a, b, steps)
#define v_mul_r_f32(d, a, b, steps) SIM_STEPS("v_mul_r_f32", SIM_MUL, d, a, b, steps)
#define v_div_r_f32(d, a, b, steps) SIM_STEPS("v_div_r_f32", SIM_DIV, d, a, b, steps)
#define v_max_r_f32(d, a, b, steps) SIM_STEPS("v_max_r_f32", SIM_MAX, d, a, b, steps)
#define v_min_r_f32(d, a, b, steps) SIM_STEPS("v_min_r_f32", SIM_MIN, d, a, b, steps)

#define SIM_UNARY(what, op, d, a, value, n) tigon_sim_unary(SIM_HERE(what), op, d, a, value, n)
#define v_add_scalar_f32(d, a, v, n) SIM_UNARY("v_add_scalar_f32", SIM_ADD_SCALAR, sim_f32(d), sim_f32(a), v, n)
#define v_mul_scalar_f32(d, a, v, n) SIM_UNARY("v_mul_scalar_f32", SIM_MUL_SCALAR, sim_f32(d), sim_f32(a), v, n)
#define v_max_scalar_f32(d, a, v, n) SIM_UNARY("v_max_scalar_f32", SIM_MAX_SCALAR, sim_f32(d), sim_f32(a), v, n)
#define v_min_scalar_f32(d, a, v, n) SIM_UNARY("v_min_scalar_f32", SIM_MIN_SCALAR, sim_f32(d), sim_f32(a), v, n)
#define v_exp_f32(d, a, n) SIM_UNARY("v_exp_f32", SIM_EXP, sim_f32(d), sim_f32(a), 0, n)
#define v_ln_f32(d, a, n) SIM_UNARY("v_ln_f32", SIM_LN, sim_f32(d), sim_f32(a), 0, n)
#define v_sqrt_f32(d, a, n) SIM_UNARY("v_sqrt_f32", SIM_SQRT, sim_f32(d), sim_f32(a), 0, n)
#define v_rsqrt_f32(d, a, n) SIM_UNARY("v_rsqrt_f32", SIM_RSQRT, sim_f32(d), sim_f32(a), 0, n)
#define v_abs_f32(d, a, n) SIM_UNARY("v_abs_f32", SIM_ABS, sim_f32(d), sim_f32(a), 0, n)
#define v_duplicate_f32(d, v, n) SIM_UNARY("v_duplicate_f32", SIM_DUPLICATE, sim_f32(d), SIM_NOTHING, v, n)
#define v_and_f32(d, a, b, n) SIM_BINARY("v_and_f32", SIM_AND, d, a, b, n)
#define v_not_f32(d, a, n) SIM_UNARY("v_not_f32", SIM_NOT, sim_f32(d), sim_f32(a), 0, n)
#define v_i32_from_f32(d, a, n) SIM_UNARY("v_i32_from_f32", SIM_TO_I32, sim_f32(d), sim_f32(a), 0, n)
#define v_f32_from_i32(d, a, n) SIM_UNARY("v_f32_from_i32", SIM_FROM_I32, sim_f32(d), sim_f32(a), 0, n)
#define v_gather_f32(d, a, offsets, n) SIM_BINARY("v_gather_f32", SIM_GATHER, d, a, offsets, n)
#define v_f32_from_bf16(d, a, n) SIM_UNARY("v_f32_from_bf16", SIM_FROM_BF16, sim_f32(d), sim_bf16(a), 0, n)
#define v_f32_from_f16(d, a, n) SIM_UNARY("v_f32_from_f16", SIM_FROM_F16, sim_f32(d), sim_f16(a), 0, n)
#define v_bf16_from_f32(d, a, n) SIM_UNARY("v_bf16_from_f32", SIM_TO_BF16, sim_bf16(d), sim_f32(a), 0, n)
#define v_f16_from_f32(d, a, n) SIM_UNARY("v_f16_from_f32", SIM_TO_F16, sim_f16(d), sim_f32(a), 0, n)
#define v_i8_from_f16(d, a, n) SIM_UNARY("v_i8_from_f16", SIM_TO_I8, sim_i8(d), sim_f16(a), 0, n)

#define v_mask_f32(lanes) tigon_sim_mask(SIM_HERE("v_mask_f32"), lanes)
#define v_sum_r_f32(d, a, repeat, d_stride, a_stride) \
  tigon_sim_reduce(SIM_HERE("v_sum_r_f32"), SIM_SUM, sim_f32(d), sim_f32(a), repeat, d_stride, a_stride)
#define v_maximum_r_f32(d, a, repeat, d_stride, a_stride) \
  tigon_sim_reduce(SIM_HERE("v_maximum_r_f32"), SIM_MAXIMUM, sim_f32(d), sim_f32(a), repeat, d_stride, a_stride)
#define v_spread_f32(d, a, repeat) tigon_sim_spread(SIM_HERE("v_spread_f32"), sim_f32(d), sim_f32(a), repeat)
#define v_lt_scalar_f32(mask, a, value) tigon_sim_compare(SIM_HERE("v_lt_scalar_f32"), sim_f32(mask), sim_f32(a), value)
#define v_select_f32(d, mask, a, b) \
  tigon_sim_select(SIM_HERE("v_select_f32"), sim_f32(d), sim_f32(mask), sim_f32(a), sim_f32(b))

#endif
