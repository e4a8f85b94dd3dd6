/* attention, forward, of few queries and many keys, in 16-bit dtypes and with heads of up to 128 on sm_90a. The queries of all heads that share
 * keys are rows of one tile, so that keys and values are read once. A cluster's blocks have a part of the keys each. In a block two
 * warpgroups have every other tile of keys: the exponentials of one hide behind the products of the other. Each has a warp that loads, and an
 * output of its own. The cluster adds outputs up in a fixed order. */
#include "cuda/attention.h"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#include "cuda/kernel/attention_wgmma.cuh"
#include "cuda/kernel/cluster.cuh"

enum { PARTS = ATTENTION_FEW_GROUPS };

/* Queries, and a place for tiles of each warpgroup: keys and values in turn. */
template <int DIM> struct memory {
  enum { STAGES = ATTENTION_FEW_STAGES, Q_BYTES = GROUP_ROWS * DIM * 2, STAGE_BYTES = KEYS * DIM * 2 };
  unsigned q, tiles, q_full;

  __device__ explicit memory(unsigned at) : q(at), tiles(at + Q_BYTES), q_full(tiles + PARTS * STAGES * STAGE_BYTES) {}
  __device__ ring<STAGES> ring_of(int part) const {
    return ring<STAGES>(tiles + part * STAGES * STAGE_BYTES, STAGE_BYTES,
                        q_full + BARRIER_BYTES + 2 * part * STAGES * BARRIER_BYTES);
  }
};

/* What the warpgroups leave where keys and values were: sums relative to max, in base 2. */
template <int DIM> struct partial { float o[PARTS][GROUP_ROWS][DIM], max[PARTS][GROUP_ROWS], sum[PARTS][GROUP_ROWS]; };

/* A block's rows, queries of some of the heads that share keys, and its keys, in tiles. */
struct few_work {
  int batch, key_head, head, tokens;
  int count, box; /* rows, and those that are loaded */
  int begin, first, end;
  band seen;

  __device__ few_work(const attention_problem &p, const cluster &c)
      : tokens((int)p.tokens), seen(band_of(p.tokens, p.keys, p.causal, p.window)) {
    const int group = (int)(p.q.heads / p.k.heads), heads = ATTENTION_FEW_HEADS(tokens, group);
    const int of_group = (group + heads - 1) / heads, tile = (int)blockIdx.x / c.size;
    batch = tile / of_group / (int)p.k.heads, key_head = tile / of_group % (int)p.k.heads;
    const int own = tile % of_group * heads;
    head = key_head * group + own, count = min(heads, group - own) * tokens, box = heads * tokens;
    begin = (int)clamp64(seen.low, 0, p.keys);
    const int tiles = ((int)clamp64(tokens - 1 + seen.high, begin, p.keys) - begin + KEYS - 1) / KEYS;
    const int each = (tiles + c.size - 1) / c.size;
    first = min(c.rank * each, tiles), end = min(first + each, tiles);
  }
  __device__ int key(int tile) const { return begin + tile * KEYS; }
  __device__ int token(int row) const { return row % tokens; }
  __device__ int head_of_row(int row) const { return head + row / tokens; }
};

/* One thread does, for a warpgroup. */
template <int DIM>
__device__ inline void bring_part(const attention_problem &p, const attention_maps &maps, const few_work &w,
                                  const memory<DIM> &m, int part) {
  if (part == 0) {
    mbarrier_arrive_expect(m.q_full, w.box * DIM * 2);
#pragma unroll
    for (int c = 0; c < DIM / 64; ++c)
      tma_load(m.q + c * GROUP_ROWS * ROW_BYTES, maps.q, m.q_full, 64 * c, 0, w.head, w.batch);
  }
  ring<memory<DIM>::STAGES> to = m.ring_of(part);
  for (int tile = w.first + part; tile < w.end; tile += PARTS) {
    bring<DIM>(to, maps.k, KEYS, w.key(tile), w.key_head, w.batch);
    bring<DIM>(to, maps.v, KEYS, w.key(tile), w.key_head, w.batch);
  }
}

template <class T, int DIM>
__device__ inline void attend_part(const attention_problem &p, const few_work &w, const memory<DIM> &m, int part,
                                   lane_rows &rows, wgmma_block<DIM> &o) {
  const lane_place_of lane;
  const float scale = p.scale * 1.44269504f;
  const uint64_t q = wgmma_operand(m.q, 0);
  ring<memory<DIM>::STAGES> tiles = m.ring_of(part);
  mbarrier_wait(m.q_full, 0);
#pragma unroll 1
  for (int tile = w.first + part; tile < w.end; tile += PARTS) {
    wgmma_block<KEYS> s;
    unsigned weights[KEYS / 16][4];
    tiles.await_full();
    start_scores<T, DIM, GROUP_ROWS>(s, q, wgmma_operand(tiles.at(), 0));
    wgmma_wait<0>();
    wgmma_keep(s);
    tiles.release();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int64_t t = w.token(lane.row(i)), from = w.key(tile);
      rows.begin[i] = (int)clamp64(t + w.seen.low - from, 0, KEYS);
      rows.end[i] = (int)clamp64(min(t + w.seen.high, p.keys) - from, 0, KEYS);
    }
    const bool masked = rows.begin[0] > 0 || rows.begin[1] > 0 || rows.end[0] < KEYS || rows.end[1] < KEYS;
    soften_tile<T>(lane, fabsf(scale), scale < 0, masked, s, rows, weights);
    scale_output<DIM>(o, rows.factor);
    tiles.await_full();
    start_sums<T, DIM>(o, weights, wgmma_operand(tiles.at(), KEYS * ROW_BYTES));
    wgmma_wait<0>();
    wgmma_keep(o);
    tiles.release();
  }
}

template <int DIM>
__device__ inline void leave_part(const few_work &w, const lane_rows &rows, const wgmma_block<DIM> &o, int part,
                                  partial<DIM> &to) {
  const lane_place_of lane;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int r = lane.row(i);
    const float sum = lanes_all<op_sum, 4>(rows.sum[i]);
    if (r >= w.count) continue;
    if (lane.t == 0) to.max[part][r] = rows.max[i], to.sum[part][r] = sum;
#pragma unroll
    for (int j = 0; j < DIM / 8; ++j)
      *(float2 *)&to.o[part][r][8 * j + 2 * lane.t] = make_float2(o.of[j][2 * i], o.of[j][2 * i + 1]);
  }
}

/* A row of all blocks and warpgroups, by a warp. */
template <class T, int DIM>
__device__ inline void finish_row(const attention_problem &p, const few_work &w, const cluster &c, partial<DIM> &own,
                                  int row) {
  const int lane = (int)threadIdx.x % WARP, token = w.token(row), h = w.head_of_row(row);
  float max = -INFINITY, sum = 0, o[DIM / WARP] = {};
  for (int b = 0; b < c.size; ++b)
    for (int part = 0; part < PARTS; ++part) max = fmaxf(max, cluster_box(c, &own, b)->max[part][row]);
  const float base = max == -INFINITY ? 0 : max;
  for (int b = 0; b < c.size; ++b)
    for (int part = 0; part < PARTS; ++part) {
      const partial<DIM> &one = *cluster_box(c, &own, b);
      const float factor = exp2_approx(one.max[part][row] - base);
      sum = fmaf(one.sum[part][row], factor, sum);
#pragma unroll
      for (int i = 0; i < DIM / WARP; ++i) o[i] = fmaf(one.o[part][row][i * WARP + lane], factor, o[i]);
    }
  const head<T> to = head_of<T>(p.o, w.batch, h, p.head_dim);
  T *const y = to.data + token * to.pitch;
  bool fine = true;
#pragma unroll
  for (int i = 0; i < DIM / WARP; ++i) {
    fine = fine && fabsf(o[i]) < INFINITY;
    if (i * WARP + lane < p.head_dim) y[i * WARP + lane] = from_f32<T>(sum == 0 ? 0 : o[i] / sum);
  }
  if (p.lse && lane == 0)
    p.lse[((int64_t)w.batch * p.q.heads + h) * p.tokens + token] =
        sum == 0 ? -INFINITY : fmaf(max, 0.693147181f, logf(sum));
  if (__all_sync(0xffffffffu, fine) || sum == 0 || !(sum < INFINITY)) return;
  const head<T> q = head_of<T>(p.q, w.batch, h, p.head_dim);
  attend_row<T, DIM>(q.data + token * q.pitch, head_of<T>(p.k, w.batch, w.key_head, p.head_dim),
                     head_of<T>(p.v, w.batch, w.key_head, p.head_dim), y, clamp64(token + w.seen.low, 0, p.keys),
                     clamp64(token + w.seen.high, 0, p.keys), p.scale * 1.44269504f);
}

template <class T, int DIM> __device__ inline void attend(const attention_problem &p, const attention_maps &maps) {
  const cluster c = cluster_of_block();
  const few_work w(p, c);
  const memory<DIM> m(shared_begin());
  const int warp = (int)threadIdx.x / WARP, part = warpgroup_index();
  if (threadIdx.x == 0) {
    mbarrier_init(m.q_full, 1);
    for (int i = 0; i < PARTS; ++i) m.ring_of(i).init(1, GROUP_WARPS);
    mbarriers_are_made();
  }
  const int each = (GROUP_ROWS - w.box) * ROW_BYTES / 16; /* the rest of a panel is 0 */
  for (int at = (int)threadIdx.x; at < DIM / 64 * each; at += (int)blockDim.x) {
    const unsigned to = m.q + (at / each * GROUP_ROWS + w.box) * ROW_BYTES + at % each * 16;
    asm volatile("st.shared::cta.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(to), "r"(0) : "memory");
  }
  wgmma_sees_shared();
  __syncthreads();
  lane_rows rows = {.max = {-INFINITY, -INFINITY}};
  wgmma_block<DIM> o = {};
  if (part < PARTS)
    attend_part<T, DIM>(p, w, m, part, rows, o);
  else if (threadIdx.x % WARP == 0)
    bring_part<DIM>(p, maps, w, m, warp - PARTS * GROUP_WARPS);
  __syncwarp();
  __syncthreads();
  partial<DIM> &own = *(partial<DIM> *)__cvta_shared_to_generic(m.tiles);
  if (part < PARTS) leave_part<DIM>(w, rows, o, part, own);
  cluster_meet(c);
  if (part < PARTS)
    for (int row = c.rank + warp * c.size; row < w.count; row += PARTS * GROUP_WARPS * c.size)
      finish_row<T, DIM>(p, w, c, own, row);
  cluster_meet(c); /* no block ends while others read from it */
}
#else /* nothing launches these */
#include "cuda/kernel/element.cuh"
typedef tigon_attention_fwd_problem attention_problem;
template <class T, int DIM> __device__ inline void attend(const attention_problem &, const attention_maps &) {}
#endif

#define KERNEL(name, T, dim)                                                                         \
  extern "C" __global__ void __launch_bounds__(ATTENTION_FEW_THREADS, 1) attention_few_wgmma_##name( \
      const __grid_constant__ attention_problem p, const __grid_constant__ attention_maps maps) {    \
    attend<T, dim>(p, maps);                                                                         \
  }
KERNEL(64_f16, f16, 64)
KERNEL(64_bf16, bf16, 64)
KERNEL(128_f16, f16, 128)
KERNEL(128_bf16, bf16, 128)
