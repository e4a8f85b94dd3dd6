/* Rows of sparsemax. `held`: a row stays in the registers of its team, or of the teams of a cluster, and is read once. `packed`:
 * a part of the row is in shared memory. `walked`: of any width; each round reads it again, out of the L2 where it fits there.
 * Members are the z = x - max x above tau, which grows from round to round; nobody is told how many rounds there are. */
#include <cuda_pipeline.h>

#include "cuda/kernel/row.cuh"
#include "cuda/sparsemax.h"

/* A NaN is a member, and so is the +inf of a row, whose z is NaN. */
__device__ static inline bool is_member(float z, float tau) { return !(z <= tau); }

/* Adds the sum of the members of some x, and their number. */
template <int N> __device__ inline void add_members(const float (&x)[N], float base, float tau, float (&to)[2]) {
  float z[N];
#pragma unroll
  for (int j = 0; j < N; ++j) {
    z[j] = x[j] - base;
    const bool member = is_member(z[j], tau);
    z[j] = member ? z[j] : 0.0f;
    to[1] += member ? 1.0f : 0.0f;
  }
  to[0] += sum_of<N>(z);
}

/* Sums over the threads of a row. V: double where a row may have more members than f32 counts exactly. */
template <class V> struct row_sums {
  const team &t;
  const cluster &cl;
  team_space<2, V> &space;
  cluster_space<2, V> &shared;
  int turn;

  __device__ void add_up(V (&of)[2]) {
    team_all<op_sum>(t, space, turn, of);
    cluster_all<op_sum>(cl, shared, turn, of);
    turn ^= 1;
  }
  /* tau from there on, as `add(tau, of)` adds a thread's members and their number. All threads have the same bits. */
  template <class F> __device__ float grown(float tau, F add) {
    for (;;) {
      V of[2] = {0, 0};
      add(tau, of);
      add_up(of);
      const float next = (float)((of[0] - 1) / of[1]); /* -inf without a member */
      if (next <= tau) return tau;
      tau = next;
      if (tau != tau) return tau;
    }
  }
};

/* The largest x of the row from its threads' own, 0 where there is none. */
__device__ static inline float row_base(const team &t, const cluster &cl, float own) {
  __shared__ team_space<1> space;
  __shared__ cluster_space<1> shared;
  float of[1] = {own};
  team_all<op_largest>(t, space, 0, of);
  cluster_all<op_largest>(cl, shared, 0, of);
  return base_of(of[0]);
}

/* The same by a warp, as `add(tau, sum, count)` adds a lane's. */
template <class F> __device__ inline float grown_in_warp(float tau, F add) {
  for (;;) {
    float sum = 0;
    int count = 0;
    add(tau, sum, count);
    sum = warp_all<op_sum>(sum);
    count = __reduce_add_sync(0xffffffffu, count);
    const float next = (sum - 1) / (float)count;
    if (next <= tau) return tau;
    tau = next;
    if (tau != tau) return tau;
  }
}

/* z into the shared memory at `to`, which goes on to the lane's next place, if it is a member and `to` is not at its end. */
__device__ static inline void list_member(float z, float tau, unsigned &to, unsigned end) {
  asm volatile("{ .reg .pred p, q; setp.lt.u32 p, %0, %3; setp.gtu.and.f32 q, %1, %2, p; @q st.shared.f32 [%0], %1; "
               "@q add.u32 %0, %0, 128; }"
               : "+r"(to)
               : "f"(z), "f"(tau), "r"(end)
               : "memory");
}

extern __shared__ uint4 sparsemax_shared[]; /* lists of the warps, then packs */

/* tau of a row of one team, by lists of the few elements that may be members. Some rounds over the threads' largest elements, whose tau is
 * less than that of all, are a start. What is above it is listed, and one warp does the rounds over the lists of all. False: a list is
 * full; tau is the start. */
template <int N, class F> __device__ inline bool find_tau(const team &t, float own, float base, F each, float &tau) {
  __shared__ team_space<2> tops;
  __shared__ int counts[MOST_WARPS];
  __shared__ float found;
  const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP, warps = t.threads / WARP;
  const float top = own - base;
  tau = -1.0f;
  for (int round = 0; round < (warps == 1 ? 3 : 2); ++round) {
    const bool member = is_member(top, tau);
    float of[2] = {member ? top : 0.0f, member ? 1.0f : 0.0f};
    team_all<op_sum>(t, tops, round & 1, of);
    const float next = (of[0] - 1) / of[1];
    if (next <= tau) break;
    tau = next;
  }
  if (tau != tau) return true;
  float *const lists = (float *)sparsemax_shared, *const list = lists + warp * (SPARSEMAX_FEW * WARP);
  const unsigned begin = shared_address(list + lane), full = begin + SPARSEMAX_FEW * WARP * (unsigned)sizeof(float);
  unsigned end_of_list = begin;
  each([&](int, float(&x)[N]) {
#pragma unroll
    for (int j = 0; j < N; ++j) list_member(x[j] - base, tau, end_of_list, full);
  });
  const int count = (int)(end_of_list - begin) / (WARP * (int)sizeof(float));
  const bool much = __any_sync(0xffffffffu, end_of_list == full);
  if (warps == 1) {
    if (much) return false;
    const int most = __reduce_max_sync(0xffffffffu, count);
    tau = grown_in_warp(tau, [&](float above, float &sum, int &members) {
      for (int k = 0; k < most; ++k) {
        const float z = k < count ? list[k * WARP + lane] : MINUS_INF;
        const bool member = is_member(z, above);
        sum += member ? z : 0.0f;
        members += member;
      }
    });
    return true;
  }
  float kept[SPARSEMAX_FEW]; /* lanes' lists become one, in order */
#pragma unroll
  for (int k = 0; k < SPARSEMAX_FEW; ++k) kept[k] = k < count ? list[k * WARP + lane] : 0.0f;
  int end = count;
#pragma unroll
  for (int d = 1; d < WARP; d *= 2) {
    const int before = __shfl_up_sync(0xffffffffu, end, d);
    end += lane >= d ? before : 0;
  }
  __syncwarp();
  if (!much) {
#pragma unroll
    for (int k = 0; k < SPARSEMAX_FEW; ++k)
      if (k < count) list[end - count + k] = kept[k];
  }
  if (lane == WARP - 1) counts[warp] = much ? -1 : end;
  __syncthreads();
  if (__any_sync(0xffffffffu, lane < warps && counts[lane] < 0)) return false;
  if (warp == 0) {
    tau = grown_in_warp(tau, [&](float above, float &sum, int &members) {
      for (int w = 0; w < warps; ++w) {
        const int listed = counts[w];
        for (int i = lane; i < listed; i += WARP) {
          const float z = lists[w * (SPARSEMAX_FEW * WARP) + i];
          const bool member = is_member(z, above);
          sum += member ? z : 0.0f;
          members += member;
        }
      }
    });
    if (lane == 0) found = tau;
  }
  __syncthreads();
  tau = found;
  return true;
}

template <class T, int N> __device__ inline void store_y(T *y, float (&x)[N], float base, float tau) {
#pragma unroll
  for (int j = 0; j < N; ++j) x[j] = op_max::of(x[j] - base - tau, 0.0f); /* a NaN stays */
  store_pack<T, N>(y, packed<T, N>(x));
}

/* ---- forward ---- */

/* EACH chunks of N a thread hold a row. */
template <class T, int N, int EACH>
__device__ inline void fwd_held(const tigon_sparsemax_problem &p, int threads, int64_t first_row) {
  __shared__ team_space<2> space;
  __shared__ cluster_space<2> shared;
  const team t = team_of(threads);
  const cluster cl = cluster_of_block();
  const columns<N> at(t, cl);
  const int step = (int)at.step, width = (int)(p.cols - at.first);
  const int64_t r = row_of_team(first_row, t, cl);
  if (r >= p.space.rows) return;
  const T *from = row_of<T>(p.space, p.x, r) + at.first;
  pack<T, N> kept[EACH];
#pragma unroll
  for (int k = 0; k < EACH; ++k) kept[k] = k * step < width ? load_pack<T, N>(from + k * step) : zero_pack<T, N>();
  /* f(column, x) of each of the thread's packs. */
  const auto each = [&](auto f) {
#pragma unroll
    for (int k = 0; k < EACH; ++k) {
      keep_packed(kept[k]);
      if (k * step >= width) continue;
      float x[N];
      unpack<T, N>(kept[k], x);
      f(k * step, x);
    }
  };
  float own = MINUS_INF;
  each([&](int, float(&x)[N]) { own = fmaxf(own, largest_of<N>(x)); });
  const float base = row_base(t, cl, own);
  float tau = -1.0f;
  if (cl.size > 1 || !find_tau<N>(t, own, base, each, tau)) {
    row_sums<float> sums{t, cl, space, shared, 0};
    tau = sums.grown(
        tau, [&](float above, float(&of)[2]) { each([&](int, float(&x)[N]) { add_members<N>(x, base, above, of); }); });
  }
  T *y = row_of<T>(p.space, p.y, r) + at.first;
  each([&](int c, float(&x)[N]) { store_y<T, N>(y + c, x, base, tau); });
  cluster_end(cl);
}

/* A block's row, SPARSEMAX_OWN packs a thread in registers and the others in shared memory, so that an SM has some rows on their way while
 * others are worked on. */
template <class T> __device__ inline void fwd_packed(const tigon_sparsemax_problem &p, int threads, int64_t first_row) {
  constexpr int N = pack<T>::N;
  __shared__ team_space<2, double> space;
  __shared__ cluster_space<2, double> shared;
  const team t = team_of(threads);
  const cluster cl{0, 1};
  const columns<N> at(t, cl);
  const int step = (int)at.step, width = (int)(p.cols - at.first);
  const int64_t r = first_row + blockIdx.x;
  const T *from = row_of<T>(p.space, p.x, r) + at.first;
  uint4 *const held = sparsemax_shared + threads * SPARSEMAX_FEW / 4 + threadIdx.x;
  pack<T, N> kept[SPARSEMAX_OWN];
#pragma unroll
  for (int k = SPARSEMAX_OWN; k < SPARSEMAX_PACKS; ++k)
    if (k * step < width) __pipeline_memcpy_async(held + (k - SPARSEMAX_OWN) * threads, from + k * step, 16);
  __pipeline_commit();
#pragma unroll
  for (int k = 0; k < SPARSEMAX_OWN; ++k)
    kept[k] = k * step < width ? load_pack<T, N>(from + k * step) : zero_pack<T, N>();
  const auto each = [&](auto f) {
#pragma unroll
    for (int k = 0; k < SPARSEMAX_PACKS; ++k) {
      if (k < SPARSEMAX_OWN) keep_packed(kept[k]);
      if (k * step >= width) continue;
      float x[N];
      unpack<T, N>(k < SPARSEMAX_OWN ? kept[k] : pack<T, N>{held[(k - SPARSEMAX_OWN) * threads]}, x);
      f(k * step, x);
    }
  };
  float own = MINUS_INF;
  __pipeline_wait_prior(0);
  each([&](int, float(&x)[N]) { own = fmaxf(own, largest_of<N>(x)); });
  const float base = row_base(t, cl, own);
  float tau;
  if (!find_tau<N>(t, own, base, each, tau)) {
    row_sums<double> sums{t, cl, space, shared, 0};
    tau = sums.grown(tau, [&](float above, double(&of)[2]) {
      each([&](int, float(&x)[N]) {
        float part[2] = {0, 0};
        add_members<N>(x, base, above, part);
        of[0] += part[0], of[1] += part[1];
      });
    });
  }
  T *y = row_of<T>(p.space, p.y, r) + at.first;
  each([&](int c, float(&x)[N]) { store_y<T, N>(y + c, x, base, tau); });
}

/* tau of the threads' largest x is less than that of all, and a start, from which few rounds are left. */
template <class T, int N>
__device__ inline void fwd_walked(const tigon_sparsemax_problem &p, int threads, int64_t first_row) {
  __shared__ team_space<2, double> space;
  __shared__ cluster_space<2, double> shared;
  const team t = team_of(threads);
  const cluster cl = cluster_of_block();
  const columns<N> at(t, cl);
  const int64_t r = row_of_team(first_row, t, cl);
  if (r >= p.space.rows) return;
  const T *from = row_of<T>(p.space, p.x, r);
  const auto each = [&](auto f) {
#pragma unroll 4
    for (int64_t c = at.first; c < p.cols; c += at.step) {
      float x[N];
      unpack<T, N>(load_pack<T, N>(from + c), x);
      f(c, x);
    }
  };
  float own = MINUS_INF;
  each([&](int64_t, float(&x)[N]) { own = fmaxf(own, largest_of<N>(x)); });
  const float base = row_base(t, cl, own);
  row_sums<double> sums{t, cl, space, shared, 0};
  const float start = sums.grown(-1.0f, [&](float above, double(&of)[2]) {
    if (is_member(own - base, above)) of[0] += own - base, of[1] += 1;
  });
  const float tau = sums.grown(start, [&](float above, double(&of)[2]) {
    each([&](int64_t, float(&x)[N]) {
      float part[2] = {0, 0};
      add_members<N>(x, base, above, part);
      of[0] += part[0], of[1] += part[1];
    });
  });
  T *y = row_of<T>(p.space, p.y, r);
  each([&](int64_t c, float(&x)[N]) { store_y<T, N>(y + c, x, base, tau); });
  cluster_end(cl);
}

/* ---- backward ---- */

/* Is y of the support? A NaN is. */
__device__ static inline bool is_supported(float y) { return !(y <= 0); }

/* dy of the support, and how many; a NaN or Inf in y makes its dy a NaN. */
template <class T, int N>
__device__ inline void add_support(const pack<T, N> &dy, const pack<T, N> &y, float (&to)[2]) {
  float a[N], b[N];
  unpack<T, N>(dy, a);
  unpack<T, N>(y, b);
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const bool supported = is_supported(b[j]);
    a[j] = supported ? fmaf(b[j], 0.0f, a[j]) : 0.0f;
    to[1] += supported ? 1.0f : 0.0f;
  }
  to[0] += sum_of<N>(a);
}

template <class T, int N>
__device__ inline void store_dx(T *dx, const pack<T, N> &dy, const pack<T, N> &y, float mean) {
  float a[N], b[N];
  unpack<T, N>(dy, a);
  unpack<T, N>(y, b);
#pragma unroll
  for (int j = 0; j < N; ++j) a[j] = is_supported(b[j]) ? a[j] - mean : 0.0f;
  store_pack<T, N>(dx, packed<T, N>(a));
}

template <class T, int N, int EACH>
__device__ inline void bwd_held(const tigon_sparsemax_problem &p, int threads, int64_t first_row) {
  __shared__ team_space<2> space;
  __shared__ cluster_space<2> shared;
  const team t = team_of(threads);
  const cluster cl = cluster_of_block();
  const columns<N> at(t, cl);
  const int step = (int)at.step, width = (int)(p.cols - at.first);
  const int64_t r = row_of_team(first_row, t, cl);
  if (r >= p.space.rows) return;
  const T *dy = row_of<T>(p.space, p.dy, r) + at.first, *y = row_of<T>(p.space, p.y, r) + at.first;
  pack<T, N> g[EACH], v[EACH];
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    g[k] = k * step < width ? load_pack<T, N>(dy + k * step) : zero_pack<T, N>();
    v[k] = k * step < width ? load_pack<T, N>(y + k * step) : zero_pack<T, N>();
  }
  float of[2] = {0, 0};
#pragma unroll
  for (int k = 0; k < EACH; ++k) add_support<T, N>(g[k], v[k], of);
  row_sums<float> sums{t, cl, space, shared, 0};
  sums.add_up(of);
  const float mean = of[0] / of[1]; /* without support nobody reads it */
  T *dx = row_of<T>(p.space, p.dx, r) + at.first;
#pragma unroll
  for (int k = 0; k < EACH; ++k) keep_packed(g[k]), keep_packed(v[k]);
#pragma unroll
  for (int k = 0; k < EACH; ++k)
    if (k * step < width) store_dx<T, N>(dx + k * step, g[k], v[k], mean);
  cluster_end(cl);
}

template <class T, int N>
__device__ inline void bwd_walked(const tigon_sparsemax_problem &p, int threads, int64_t first_row) {
  __shared__ team_space<2, double> space;
  __shared__ cluster_space<2, double> shared;
  const team t = team_of(threads);
  const cluster cl = cluster_of_block();
  const columns<N> at(t, cl);
  const int64_t r = row_of_team(first_row, t, cl);
  if (r >= p.space.rows) return;
  const T *dy = row_of<T>(p.space, p.dy, r), *y = row_of<T>(p.space, p.y, r);
  T *dx = row_of<T>(p.space, p.dx, r);
  double of[2] = {0, 0};
#pragma unroll 4
  for (int64_t c = at.first; c < p.cols; c += at.step) {
    float part[2] = {0, 0};
    add_support<T, N>(load_pack<T, N>(dy + c), load_pack<T, N>(y + c), part);
    of[0] += part[0], of[1] += part[1];
  }
  row_sums<double> sums{t, cl, space, shared, 0};
  sums.add_up(of);
  const float mean = (float)(of[0] / of[1]);
#pragma unroll 4
  for (int64_t c = at.first; c < p.cols; c += at.step)
    store_dx<T, N>(dx + c, load_pack<T, N>(dy + c), load_pack<T, N>(y + c), mean);
  cluster_end(cl);
}

KERNEL_BY_DTYPE(sparsemax_fwd_packed, (ROW_MOST_THREADS, 1),
                (const __grid_constant__ tigon_sparsemax_problem p, const int team, const int64_t first_row),
                fwd_packed<T>(p, team, first_row))

#define BOUNDS_fwd (ROW_MOST_THREADS, 1) /* or ptxas spills, to have two such blocks an SM */
#define BOUNDS_bwd (ROW_MOST_THREADS)
#define ROWS(direction, name, work, ...)                                                                        \
  KERNEL_BY_DTYPE(sparsemax_##direction##_##name, BOUNDS_##direction,                                           \
                  (const __grid_constant__ tigon_sparsemax_problem p, const int team, const int64_t first_row), \
                  direction##_##work<T, __VA_ARGS__>(p, team, first_row))
#define BOTH(name, work, ...)        \
  ROWS(fwd, name, work, __VA_ARGS__) \
  ROWS(bwd, name, work, __VA_ARGS__)

BOTH(1, held, pack<T>::N, 1)
BOTH(2, held, pack<T>::N, 2)
BOTH(4, held, pack<T>::N, 4)
BOTH(any_8, held, 1, 8)
BOTH(any_16, held, 1, 16)
BOTH(walk, walked, pack<T>::N)
BOTH(any, walked, 1)
