/* How warpgroups of attention's kernels for sm_90a come by their tiles and their turns, and where sums lie in registers. */
#ifndef TIGON_CUDA_KERNEL_ATTENTION_RING_CUH
#define TIGON_CUDA_KERNEL_ATTENTION_RING_CUH

#include "cuda/kernel/attention_math.cuh"
#include "cuda/kernel/tma.cuh"
#include "cuda/kernel/wgmma_columns.cuh"

enum {
  GROUP = 128,     /* threads of a warpgroup */
  GROUP_ROWS = 64, /* queries, or keys */
  GROUP_WARPS = GROUP / WARP,
  ALIGNMENT = 1024, /* alignment of tiles in shared memory */
  BARRIER_BYTES = 8,
  BARRIERS_BYTES = 256, /* bytes of all its barriers, at most */
  MOST = 1 << 30,       /* rows */
  ROW_BYTES = 128,      /* bytes of a row in shared memory, 64 columns of a head; a panel is the rows of a tile */
};

/* ---- tiles ---- */

/* A place in shared memory that stages have in turns. A stage is full when its bytes have come, and empty when all products of it are done. */
template <int STAGES> struct ring {
  unsigned data, barriers; /* barriers of full stages, then of empty ones */
  unsigned bytes;          /* bytes of a stage */
  int stage, parity;

  __device__ ring(unsigned data_, unsigned bytes_, unsigned barriers_)
      : data(data_), barriers(barriers_), bytes(bytes_), stage(0), parity(0) {}
  __device__ unsigned full(int at) const { return barriers + at * BARRIER_BYTES; }
  __device__ unsigned empty(int at) const { return barriers + (STAGES + at) * BARRIER_BYTES; }
  __device__ void init(int writers, int readers) const {
    for (int at = 0; at < STAGES; ++at) mbarrier_init(full(at), writers), mbarrier_init(empty(at), readers);
  }
  __device__ unsigned at() const { return data + stage * bytes; }
  __device__ void next() {
    stage = stage + 1 == STAGES ? 0 : stage + 1;
    parity ^= stage == 0;
  }
  __device__ void await_full() const { mbarrier_wait(full(stage), parity); }
  __device__ void await_empty() const { mbarrier_wait(empty(stage), parity ^ 1); } /* at first all are */
  __device__ void release() {                                                      /* by a lane of each warp */
    if (threadIdx.x % WARP == 0) mbarrier_arrive(empty(stage));
    next();
  }
  __device__ void release_all() { mbarrier_arrive(empty(stage)), next(); } /* by each lane, which read itself */
};

template <int DIM, int STAGES>
__device__ inline void bring(ring<STAGES> &to, const cu_tensor_map &map, int rows, int row, int head, int batch) {
  to.await_empty();
  mbarrier_arrive_expect(to.full(to.stage), rows * DIM * 2);
#pragma unroll
  for (int c = 0; c < DIM / 64; ++c)
    tma_load(to.at() + c * rows * ROW_BYTES, map, to.full(to.stage), 64 * c, row, head, batch);
  to.next();
}

/* A tile of rows of a head, and what they see of the other side: from `begin` on, in steps of COLS. Steps go upwards or downwards. */
struct tile_work {
  int batch, head, first, count, begin, steps;
  bool upwards;
  band seen;

  __device__ int step(int i) const { return upwards ? i : steps - 1 - i; } /* the i-th to come */
};

template <class P> __device__ inline int key_head(const P &p, int head) { return head / (int)(p.q.heads / p.k.heads); }

/* The head and the tile that a block, or a cluster of `parts`, has in a round; false: there is none. Heads of a section, whose other side fits the L2, are gone over
 * together, those tiles first that have most to do under a causal mask. Every other round begins at the other end, so that blocks have
 * alike. Paired, a block has the n-th tile of a head, then the n-th from the end: all pairs have alike. */
__device__ static inline bool turn_of(const attention_turns &turns, int round, int *head, int *tile) {
  const int blocks = (int)gridDim.x / turns.parts, block = (int)blockIdx.x / turns.parts;
  if (turns.paired) {
    const int pairs = (turns.tiles + 1) / 2, index = round / 2 * blocks + block, pair = index % pairs;
    *head = index / pairs, *tile = round % 2 ? turns.tiles - 1 - pair : pair;
    return *head < turns.heads && (round % 2 == 0 || *tile != pair);
  }
  const int index = round * blocks + (round % 2 ? blocks - 1 - block : block);
  if (index >= turns.tiles * turns.heads) return false;
  const int before = index / (turns.section * turns.tiles) * turns.section, at = index - before * turns.tiles;
  const int heads = min(turns.section, turns.heads - before);
  *head = before + at % heads, *tile = at / heads;
  return true;
}

/* A tile's rows, and the other side's from a multiple of `unit` on. OF_KEYS: rows are keys. */
template <bool OF_KEYS, int ROWS, int COLS, class P>
__device__ inline void place_tile(const P &p, int head, int tile, int unit, tile_work *w) {
  const int of_batch = (int)(OF_KEYS ? p.k.heads : p.q.heads);
  const int rows = (int)(OF_KEYS ? p.keys : p.tokens), others = (int)(OF_KEYS ? p.tokens : p.keys);
  const band seen = band_of(p.tokens, p.keys, p.causal, p.window);
  w->batch = head / of_batch, w->head = head % of_batch;
  w->first = tile * ROWS, w->count = min(rows - w->first, ROWS);
  w->seen = OF_KEYS ? band_mirrored(seen) : seen;
  const int begin = (int)clamp64(w->first + w->seen.low, 0, others);
  const int end = (int)clamp64(w->first + w->count - 1 + w->seen.high, 0, others);
  w->begin = begin / unit * unit;
  w->steps = end > begin ? (end - w->begin + COLS - 1) / COLS : 0;
}

/* The block's tile in a round. Blocks of a head that run side by side should meet the same columns, for the L2's
 * sake. Under a causal mask all tiles of keys end at one query, and all of queries begin at one key. So the half that has more to do, with
 * which blocks begin, starts there; the other half, with which pairs end, comes to there. */
template <bool OF_KEYS, int ROWS, int COLS, class P>
__device__ inline bool work_of(const P &p, const attention_turns &turns, int round, tile_work *w) {
  int head, tile;
  if (!turn_of(turns, round, &head, &tile)) return false;
  w->upwards = OF_KEYS == (p.causal && 2 * tile >= turns.tiles);
  place_tile<OF_KEYS, ROWS, COLS>(p, head, OF_KEYS ? tile : turns.tiles - 1 - tile, 1, w);
  return true;
}

/* What a warpgroup's rows from row0 on see of a step's columns: row 0 those of [low, high), of all that are there. */
template <int COLS> struct step_mask {
  int low, high, cols;

  step_mask() = default;
  __device__ step_mask(const tile_work &w, int row0, int others)
      : low((int)clamp64(row0 + w.seen.low - w.begin, -MOST, MOST)),
        high((int)clamp64(row0 + w.seen.high - w.begin, -MOST, MOST)), cols(others - w.begin) {}
  __device__ step_mask below(int rows) const { /* the same for rows that begin so many on */
    step_mask m = *this;
    m.low += rows, m.high += rows;
    return m;
  }
  __device__ bool masked(int step) const {
    return low + GROUP_ROWS - 1 > step * COLS || min(high, cols) < (step + 1) * COLS;
  }
  __device__ int begin(int row, int step) const { return row + low - step * COLS; }
  __device__ int end(int row, int step) const { return min(row + high, cols) - step * COLS; }
};

/* The beginning of the dynamic shared memory. */
__device__ static inline unsigned shared_begin() {
  extern __shared__ __align__(ALIGNMENT) char shared[];
  const unsigned begin = (unsigned)__cvta_generic_to_shared(shared);
  return __shfl_sync(0xffffffffu, begin, 0); /* else the compiler would work it out again in every step */
}

/* s = a b^T of the warpgroup's rows and of COLS; rows of the block lie in panels of ROWS. */
template <class T, int DIM, int ROWS, int COLS>
__device__ inline void start_scores(wgmma_block<COLS> &s, uint64_t a, uint64_t b) {
  wgmma_fence();
#pragma unroll
  for (int c = 0; c < DIM / 16; ++c)
    wgmma_rows<T>(s, operand_on(a, c / 4 * ROWS * ROW_BYTES + c % 4 * 32),
                  operand_on(b, c / 4 * COLS * ROW_BYTES + c % 4 * 32), c > 0);
  wgmma_commit();
}

/* sums += weights b of COLS rows of b. */
template <class T, int DIM, int PARTS>
__device__ inline void start_sums(wgmma_block<DIM> &sums, const unsigned (&weights)[PARTS][4], uint64_t b) {
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < PARTS; ++k) wgmma_terms<T>(sums, weights[k], operand_on(b, k * 16 * ROW_BYTES));
  wgmma_commit();
}

/* ---- warpgroups ---- */

/* The compiler sees that a warp agrees on it. */
__device__ static inline int warpgroup_index() { return __shfl_sync(0xffffffffu, (int)threadIdx.x / GROUP, 0); }

/* Warpgroups take turns: each waits for the one before it. */
template <int GROUPS> struct turn {
  int own, next; /* named barriers, the block's own being 0 */

  __device__ explicit turn(int group) : own(1 + group), next(1 + (group + 1) % GROUPS) {
    if (group == GROUPS - 1) pass();
  }
  __device__ void take() const { asm volatile("bar.sync %0, %1;" ::"r"(own), "n"(2 * GROUP) : "memory"); }
  __device__ void pass() const { asm volatile("bar.arrive %0, %1;" ::"r"(next), "n"(2 * GROUP) : "memory"); }
};

/* ---- a lane's sums ---- */

__device__ static inline float exp2_approx(float v) {
  float e;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(v));
  return e;
}

/* Row r of a warp's 16 is g or g + 8; column j of a thread's. */
struct lane_place_of {
  int g, t, first; /* first: the warp's row in the warpgroup's */

  __device__ lane_place_of()
      : g((int)threadIdx.x % WARP / 4), t((int)threadIdx.x % 4), first((int)threadIdx.x % GROUP / WARP * 16) {}
  __device__ int row(int i) const { return first + g + 8 * i; }
};

/* Four registers of four lanes change places: lane t has what lanes 0, 1, 2, 3 had in their t-th. */
__device__ static inline void transpose_quad(int t, unsigned (&r)[4]) {
#pragma unroll
  for (int d = 1; d < 4; d *= 2) {
    const bool upper = t & d;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & d) continue;
      const unsigned sent = upper ? r[i] : r[i | d], came = __shfl_xor_sync(0xffffffffu, sent, d);
      if (upper)
        r[i] = came;
      else
        r[i | d] = came;
    }
  }
}

/* Rows of o by 16 bytes; rows below `count` exist. */
template <class T, int DIM>
__device__ inline void store_rows(const lane_place_of &lane, const head<T> &to, int64_t row0, int count,
                                  const wgmma_block<DIM> &o, const float (&by)[2]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int r = lane.row(i);
    T *const row = to.data + (row0 + r) * to.pitch;
#pragma unroll
    for (int j0 = 0; j0 < DIM / 8; j0 += 4) {
      unsigned of[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float *const v = &o.of[j0 + j][2 * i];
        of[j] = packed_two<T>(by[i] == 0 ? 0 : v[0] * by[i], by[i] == 0 ? 0 : v[1] * by[i]);
      }
      transpose_quad(lane.t, of);
      const int column = 8 * (j0 + lane.t);
      if (r < count && column < to.width) store_16_bytes(row + column, make_uint4(of[0], of[1], of[2], of[3]));
    }
  }
}

#endif
