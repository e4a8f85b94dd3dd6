/* Rows of sparsemax. `held`: a row stays in the registers of its team, or of the teams of a cluster, and is read once.
 * `walked`: of any width; each round reads it again, out of the L2 where it fits there. Members are the z = x - max x above tau,
 * which grows from round to round; nobody is told how many rounds there are. */
#include "cuda/kernel/row.cuh"

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

template <class T, int N> __device__ inline void store_y(T *y, float (&x)[N], float base, float tau) {
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const float v = x[j] - base - tau;
    x[j] = v <= 0 ? 0.0f : v; /* a NaN stays */
  }
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
  row_sums<float> sums{t, cl, space, shared, 0};
  const float tau = sums.grown(-1.0f, [&](float above, float(&of)[2]) {
    if (above > -1.0f && own - base <= above) return; /* the first round has seen every NaN */
    each([&](int, float(&x)[N]) { add_members<N>(x, base, above, of); });
  });
  T *y = row_of<T>(p.space, p.y, r) + at.first;
  each([&](int c, float(&x)[N]) { store_y<T, N>(y + c, x, base, tau); });
  cluster_end(cl);
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
  const float mean = of[0] / of[1]; /* of no support nobody reads it */
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

#define ROWS(direction, name, work, ...)                                                                        \
  KERNEL_BY_DTYPE(sparsemax_##direction##_##name, (ROW_MOST_THREADS),                                           \
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
