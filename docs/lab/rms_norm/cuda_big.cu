/* Study: forward of wide rows in bf16 as a model meets it, one cold call each, all ways in turns; y's bits are checked. Build and run:
 *   nvcc -std=c++17 -O3 -gencode arch=compute_90,code=sm_90 -Isrc -Iinclude docs/lab/rms_norm/cuda_big.cu -o cuda_big && ./cuda_big
 * `held` and `swept` are the library's, with -DSTAYS with stores that stay in the L2. The kernels ran in programs that took turns with
 * the peers (cuda.md); this one, which puts them together, has not run. */
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "cuda_time.cuh"

#include "cuda/kernel/norm_fwd.cuh"

/* ---- the library's, as they are and with the row of a later block on its way into the L2 ---- */

__device__ static inline void prefetch_row(const void *at, int bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(__cvta_generic_to_global(at)), "r"(bytes) : "memory");
}
template <norm_kind KIND> __device__ inline void prefetch_ahead(const norm_plain &p, int ahead) {
  const int64_t r = (int64_t)blockIdx.x + ahead;
  if (ahead == 0 || threadIdx.x != blockDim.x - 32 || r >= p.rows) return;
  prefetch_row(norm_row<bf16>(p, p.x, r), p.cols * 2);
  if (KIND == NORM_ADD_RMS) prefetch_row(norm_row<bf16>(p, p.residual, r), p.cols * 2);
}
template <norm_kind KIND, int PACKS, norm_hold HOLD, int THREADS, int BLOCKS, bool AHEAD>
__global__ void __launch_bounds__(THREADS, BLOCKS) held(const __grid_constant__ norm_plain p, int ahead) {
  if (AHEAD) prefetch_ahead<KIND>(p, ahead);
  norm_fwd_held<bf16, KIND, PACKS, HOLD>(p, p.rows, p.team);
}
template <norm_kind KIND, bool AHEAD>
__global__ void __launch_bounds__(1024, 2) swept(const __grid_constant__ norm_plain p, int ahead) {
  if (AHEAD) prefetch_ahead<KIND>(p, ahead);
  norm_fwd_swept<bf16, KIND, 4>(p);
}

__global__ void copy_each(const __grid_constant__ norm_plain p, int streams) {
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i * 8 >= p.rows * p.cols) return;
  const uint4 v = ((const uint4 *)p.x.data)[i];
  if (streams == 2) {
    const uint4 a = ((const uint4 *)p.residual.data)[i];
    store_16_bytes((uint4 *)p.s.data + i, uint4{v.x ^ a.x, v.y ^ a.y, v.z ^ a.z, v.w ^ a.w});
  }
  store_16_bytes((uint4 *)p.y.data + i, v);
}

extern __shared__ __align__(128) uint4 stages_of[];

/* ---- swept twice, the second time out of the L1, by blocks that fill an SM; y is made by products of bf16 ---- */

template <int PACKS, int THREADS>
__global__ void __launch_bounds__(THREADS, 2048 / THREADS) twice(const __grid_constant__ norm_plain p) {
  constexpr int N = 8;
  __shared__ team_space<1> space;
  const team t = {THREADS, (int)threadIdx.x, 0, 1};
  const int own = threadIdx.x, packs = p.cols / N, r = blockIdx.x;
  const uint4 *x = (const uint4 *)norm_row<bf16>(p, p.x, r);
  float sums[1] = {0};
#pragma unroll 1
  for (int first = own; first < packs; first += PACKS * THREADS) {
    uint4 v[PACKS];
#pragma unroll
    for (int k = 0; k < PACKS; ++k)
      if (first + k * THREADS < packs) v[k] = load_to_keep(x + first + k * THREADS);
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
      if (first + k * THREADS >= packs) continue;
      float f[N], part = 0;
      unpack(pack_of<bf16>(v[k]), f);
#pragma unroll
      for (int j = 0; j < N; ++j) part = fmaf(f[j], f[j], part);
      sums[0] += part;
    }
  }
  team_all<op_sum>(t, space, 0, sums);
  norm_out<bf16> out = norm_out_of<bf16, NORM_RMS>(p, r);
  norm_statistics<bf16>(p, r, threadIdx.x == 0, sums[0], out);
#pragma unroll 1
  for (int c = own; c < packs; c += THREADS) {
    float v[N];
    const uint4 bits = load_to_drop(x + c), w = __ldg((const uint4 *)p.w + c);
    unpack(pack_of<bf16>(bits), v);
#pragma unroll
    for (int j = 0; j < N; ++j) v[j] *= out.rstd;
    const pack<bf16> made = product(packed<bf16>(v), pack_of<bf16>(w));
    store_16_bytes(out.y + c * N, *(const uint4 *)&made);
  }
}

/* ---- a block a row, which waits in shared memory: registers have PACKS packs at a time, so that all threads are on an SM ---- */

enum { ALL = 4 }; /* packs of a thread */

template <norm_kind KIND, int PACKS, bool EARLY, int THREADS, int BLOCKS>
__global__ void __launch_bounds__(THREADS, BLOCKS) stashed(const __grid_constant__ norm_plain p) {
  constexpr int N = 8;
  __shared__ team_space<1> space;
  const team t = {(int)blockDim.x, (int)threadIdx.x, 0, 1};
  const int own = threadIdx.x, step = blockDim.x, packs = p.cols / N, r = blockIdx.x;
  const uint4 *x = (const uint4 *)norm_row<bf16>(p, p.x, r) + own;
  const uint4 *residual = KIND == NORM_ADD_RMS ? (const uint4 *)norm_row<bf16>(p, p.residual, r) + own : NULL;
  uint4 *s = KIND == NORM_ADD_RMS ? (uint4 *)norm_row<bf16>(p, p.s, r) + own : NULL;
  uint4 *mine = stages_of + own;
  float sums[1] = {0};
#pragma unroll 1
  for (int first = 0; first < ALL; first += PACKS) {
    uint4 v[PACKS], add[PACKS];
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
      v[k] = add[k] = uint4{0, 0, 0, 0};
      const int at = (first + k) * step;
      if (own + at >= packs) continue;
      v[k] = x[at];
      if (KIND == NORM_ADD_RMS) add[k] = residual[at];
    }
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
      const int at = (first + k) * step;
      float f[N], part = 0;
      unpack(pack_of<bf16>(v[k]), f);
      if (KIND == NORM_ADD_RMS) {
        float a[N];
        unpack(pack_of<bf16>(add[k]), a);
#pragma unroll
        for (int j = 0; j < N; ++j) f[j] += a[j];
        const pack<bf16> both = packed<bf16>(f);
        v[k] = *(const uint4 *)&both;
        unpack(both, f);
        if (own + at < packs) store_16_bytes(s + at, v[k]);
      }
      mine[at] = v[k];
#pragma unroll
      for (int j = 0; j < N; ++j) part = fmaf(f[j], f[j], part);
      sums[0] += part;
    }
  }
  uint4 weights[EARLY ? ALL : 1];
  if (EARLY) {
#pragma unroll
    for (int k = 0; k < ALL; ++k)
      if (own + k * step < packs) weights[k] = __ldg((const uint4 *)p.w + own + k * step);
  }
  team_all<op_sum>(t, space, 0, sums);
  norm_out<bf16> out = norm_out_of<bf16, KIND>(p, r);
  norm_statistics<bf16>(p, r, threadIdx.x == 0, sums[0], out);
#pragma unroll
  for (int k = 0; k < ALL; ++k) {
    if (own + k * step >= packs) continue;
    float v[N];
    unpack(pack_of<bf16>(mine[k * step]), v);
    if (KIND == NORM_MODULATED) {
      norm_output<bf16, KIND>(p, out, (own + k * step) * N, v);
    } else {
      const uint4 w = EARLY ? weights[k] : __ldg((const uint4 *)p.w + own + k * step);
#pragma unroll
      for (int j = 0; j < N; ++j) v[j] *= out.rstd;
      const pack<bf16> made = product(packed<bf16>(v), pack_of<bf16>(w));
      store_16_bytes(out.y + (own + k * step) * N, *(const uint4 *)&made);
    }
  }
}

/* ---- rows dealt out to blocks that stay, on their way into a ring of shared memory by the copy engine ---- */

enum ring_hints { FIRST = 1, LAST = 2 }; /* loads with the L2 policy evict_first, stores with evict_last */
enum { MOST_STAGES = 8 };

template <int HINTS> __device__ inline void ring_load(uint32_t to, const void *from, int bytes, uint32_t arrived) {
  if (HINTS & FIRST)
    asm volatile(
        "{.reg .b64 policy; createpolicy.fractional.L2::evict_first.b64 policy, 1.0;"
        " cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], policy;}" ::
            "r"(to),
        "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(arrived)
        : "memory");
  else
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(arrived)
                 : "memory");
}
template <int HINTS> __device__ inline void ring_store(void *at, const uint4 &v) {
  norm_plain p = {};
  p.stays = HINTS & LAST;
  norm_put<4>(p, (bf16 *)at, pack_of<bf16>(v));
}

/* A block has PACKS packs a thread of a row. TICKET: rows are taken as blocks come to them, else block b has rows b, b + blocks, ... BULK: y
 * goes back into the stage and is stored by the copy engine. */
template <norm_kind KIND, int PACKS, bool TICKET, bool BULK, int HINTS, int BOUND = 1024>
__global__ void __launch_bounds__(BOUND) ring(const __grid_constant__ norm_plain p, int stages, unsigned *ticket) {
  constexpr int N = 8, STREAMS = KIND == NORM_ADD_RMS ? 2 : 1;
  __shared__ team_space<1> space;
  __shared__ uint64_t arrived[MOST_STAGES];
  __shared__ int rows_of[MOST_STAGES];
  const team t = {(int)blockDim.x, (int)threadIdx.x, 0, 1};
  const int own = threadIdx.x, step = blockDim.x, packs = p.cols / N, rows = (int)p.rows, bytes = p.cols * 2;
  auto fetch = [&](int r, int stage) {
    const uint32_t barrier = shared_address(&arrived[stage]);
    rows_of[stage] = r;
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(r < rows ? STREAMS * bytes : 0)
                 : "memory");
    if (r >= rows) return;
    const uint32_t to = shared_address(stages_of) + stage * STREAMS * bytes;
    ring_load<HINTS>(to, norm_row<bf16>(p, p.x, r), bytes, barrier);
    if (STREAMS == 2) ring_load<HINTS>(to + bytes, norm_row<bf16>(p, p.residual, r), bytes, barrier);
  };
  int ahead = blockIdx.x;
  unsigned taken = 0;
  if (threadIdx.x == 0) {
    for (int i = 0; i < stages; ++i)
      asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(shared_address(&arrived[i])) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    for (int i = 0; i < stages; ++i, ahead += gridDim.x) fetch(ahead, i);
    if (TICKET) taken = atomicAdd(ticket, 1);
  }
  uint4 weights[PACKS];
#pragma unroll
  for (int k = 0; k < PACKS; ++k) {
    weights[k] = uint4{0, 0, 0, 0};
    if (own + k * step < packs) weights[k] = __ldg((const uint4 *)p.w + own + k * step);
  }
  __syncthreads();
  int stage = 0, phase = 0, turn = 0, before = -1;
  for (;;) {
    const uint32_t barrier = shared_address(&arrived[stage]);
    for (uint32_t done = 0; !done;)
      asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                   : "=r"(done)
                   : "r"(barrier), "r"(phase)
                   : "memory");
    const int r = rows_of[stage];
    if (r >= rows) break;
    uint4 *at = stages_of + stage * STREAMS * packs + own;
    bf16 *s = KIND == NORM_ADD_RMS ? norm_row<bf16>(p, p.s, r) + own * N : NULL,
         *y = norm_row<bf16>(p, p.y, r) + own * N;
    uint4 kept[PACKS];
    float sums[1] = {0};
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
      kept[k] = uint4{0, 0, 0, 0};
      const bool has = own + k * step < packs;
      if (has) kept[k] = at[k * step];
      float v[N], part = 0;
      unpack(pack_of<bf16>(kept[k]), v);
      if (KIND == NORM_ADD_RMS) {
        uint4 add = {0, 0, 0, 0};
        if (has) add = at[packs + k * step];
        float a[N];
        unpack(pack_of<bf16>(add), a);
#pragma unroll
        for (int j = 0; j < N; ++j) v[j] += a[j];
        const pack<bf16> both = packed<bf16>(v);
        kept[k] = *(const uint4 *)&both;
        unpack(both, v);
        if (has && !BULK) ring_store<HINTS>(s + k * step * N, kept[k]);
        if (has && BULK) at[k * step] = kept[k];
      }
#pragma unroll
      for (int j = 0; j < N; ++j) part = fmaf(v[j], v[j], part);
      sums[0] += part;
    }
    team_all<op_sum>(t, space, turn, sums);
    turn ^= 1;
    if (threadIdx.x == 0 && (!BULK || before >= 0)) {
      if (BULK) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
      fetch(TICKET ? (int)taken + stages * gridDim.x : ahead, BULK ? before : stage);
      ahead += gridDim.x;
      if (TICKET) taken = atomicAdd(ticket, 1);
    }
    norm_out<bf16> out = {};
    norm_statistics<bf16>(p, r, threadIdx.x == 0, sums[0], out);
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
      if (own + k * step >= packs) continue;
      float v[N];
      unpack_again<bf16>(kept[k], v);
#pragma unroll
      for (int j = 0; j < N; ++j) v[j] *= out.rstd;
      const pack<bf16> made = product(packed<bf16>(v), pack_of<bf16>(weights[k]));
      if (BULK)
        at[(STREAMS - 1) * packs + k * step] = *(const uint4 *)&made;
      else
        ring_store<HINTS>(y + k * step * N, *(const uint4 *)&made);
    }
    if (BULK) {
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      __syncthreads();
      if (threadIdx.x == 0) {
        const uint32_t from = shared_address(at);
        auto store = [&](void *to, uint32_t place) {
          asm volatile(
              "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(__cvta_generic_to_global(to)),
              "r"(place), "r"(bytes)
              : "memory");
        };
        if (STREAMS == 2) store(s, from);
        store(y, from + (STREAMS - 1) * bytes);
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      }
    }
    before = stage;
    if (++stage == stages) stage = 0, phase ^= 1;
  }
  if (BULK && threadIdx.x == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  if (TICKET && threadIdx.x == 0) { /* the last to come puts it back */
    __threadfence();
    if (atomicInc(ticket + 1, gridDim.x - 1) == gridDim.x - 1) *ticket = 0;
  }
}

/* ---- the ways ---- */

enum { SMS = 132, SHARED = 226 << 10, ROWS = 8192 };
static norm_plain p;
static unsigned *ticket;

struct candidate {
  std::string name;
  std::function<bool()> launch; /* false: takes no such rows */
};

template <norm_kind KIND, bool TICKET, bool BULK, int HINTS> static bool ring_way(int most_stages) {
  const int stage = p.cols * 2 * (KIND == NORM_ADD_RMS ? 2 : 1), blocks = 1024 / p.team;
  const int stages = std::min({most_stages, (SHARED / blocks - 1024) / stage, (int)MOST_STAGES});
  if (stages < (BULK ? 2 : 1)) return false;
  auto *kernel = ring<KIND, 4, TICKET, BULK, HINTS>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, stages * stage);
  kernel<<<SMS * blocks, p.team, stages * stage>>>(p, stages, ticket);
  return true;
}
template <norm_kind KIND, int PACKS, bool EARLY, int THREADS, int BLOCKS> static bool stashed_way() {
  if (p.team > THREADS) return false;
  auto *kernel = stashed<KIND, PACKS, EARLY, THREADS, BLOCKS>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, p.cols * 2);
  kernel<<<ROWS, p.team, p.cols * 2>>>(p);
  return true;
}
template <norm_kind KIND, norm_hold HOLD, int THREADS, int BLOCKS, bool AHEAD> static bool held_way(int ahead) {
  if (p.team > THREADS) return false;
  held<KIND, 4, HOLD, THREADS, BLOCKS, AHEAD><<<ROWS, p.team>>>(p, ahead);
  return true;
}
template <norm_kind KIND, bool AHEAD> static bool swept_way(int ahead) {
  if (KIND == NORM_ADD_RMS || p.team != NORM_SWEPT_THREADS) return false;
  swept<KIND, AHEAD><<<ROWS, p.team>>>(p, ahead);
  return true;
}

template <int PACKS> static bool twice_way() {
  if (p.team == 512) return twice<PACKS, 512><<<ROWS, 512>>>(p), true;
  if (p.team == 1024) return twice<PACKS, 1024><<<ROWS, 1024>>>(p), true;
  return false;
}

template <norm_kind K> static std::vector<candidate> ways_of() {
  constexpr norm_hold HOLD = K == NORM_MODULATED ? HOLD_LATE : HOLD_EARLY;
  const int resident = SMS * (1024 / p.team);
  std::vector<candidate> ways = {
      {"held", [=] { return held_way<K, HOLD, 1024, 1, false>(0); }},
      {"copy", [=] { return copy_each<<<ROWS * p.cols / 2048, 256>>>(p, K == NORM_ADD_RMS ? 2 : 1), true; }},
      {"swept", [=] { return swept_way<K, false>(0); }},
      {"held, the next row prefetched", [=] { return held_way<K, HOLD, 1024, 1, true>(resident); }},
      {"swept, the next row prefetched", [=] { return swept_way<K, true>(2 * resident); }},
      {"late, 3 blocks of 512", [=] { return held_way<K, HOLD_LATE, 512, 3, false>(0); }},
      {"stashed, 4 packs, w early, 64 registers", [=] { return stashed_way<K, 4, true, 1024, 1>(); }},
      {"stashed, 4 packs, w early, 40 registers", [=] { return stashed_way<K, 4, true, 512, 3>(); }},
      {"stashed, 4 packs, w late, 32 registers", [=] { return stashed_way<K, 4, false, 1024, 2>(); }},
      {"stashed, 2 packs, w early, 32 registers", [=] { return stashed_way<K, 2, true, 1024, 2>(); }},
      {"stashed, 1 pack, w early, 32 registers", [=] { return stashed_way<K, 1, true, 1024, 2>(); }},
  };
  if constexpr (K != NORM_MODULATED) {
    ways.push_back({"ring", [=] { return ring_way<K, false, false, 0>(MOST_STAGES); }});
    ways.push_back({"ring of one stage", [=] { return ring_way<K, false, false, 0>(1); }});
    ways.push_back({"ring, ticket", [=] { return ring_way<K, true, false, 0>(MOST_STAGES); }});
    ways.push_back({"ring, bulk stores", [=] { return ring_way<K, false, true, 0>(MOST_STAGES); }});
    ways.push_back({"ring, ticket, bulk stores", [=] { return ring_way<K, true, true, 0>(MOST_STAGES); }});
    ways.push_back({"ring, loads evict_first", [=] { return ring_way<K, false, false, FIRST>(MOST_STAGES); }});
    ways.push_back({"ring, stores evict_last", [=] { return ring_way<K, false, false, LAST>(MOST_STAGES); }});
  }
  if constexpr (K == NORM_RMS) {
    ways.push_back({"twice, 4 packs", [=] { return twice_way<4>(); }});
    ways.push_back({"twice, 2 packs", [=] { return twice_way<2>(); }});
    ways.push_back({"twice, 1 pack", [=] { return twice_way<1>(); }});
  }
  return ways;
}

/* Each is checked against the first, bit for bit; a copy differs. */
static void in_turns(const char *title, const std::vector<candidate> &candidates) {
  const size_t bytes = (size_t)ROWS * p.cols * 2;
  std::vector<uint16_t> first, made(bytes); /* y, then s */
  std::vector<way> ways;
  std::vector<std::string> notes;
  for (const candidate &one : candidates) {
    cudaMemset(p.y.data, 0, bytes), cudaMemset(p.s.data, 0, bytes);
    if (!one.launch()) continue;
    cudaMemcpy(made.data(), p.y.data, bytes, cudaMemcpyDeviceToHost);
    cudaMemcpy(made.data() + bytes / 2, p.s.data, bytes, cudaMemcpyDeviceToHost);
    if (first.empty()) first = made;
    size_t off = 0;
    for (size_t i = 0; i < bytes; ++i) off += made[i] != first[i];
    ways.push_back({one.name, one.launch, {}});
    notes.push_back(off ? "  " + std::to_string(off) + " differ" : "");
  }
  printf("%s, %d x %d: us, quartiles%s\n", title, ROWS, p.cols, cudaGetLastError() == cudaSuccess ? "" : ", FAILED");
  time_in_turns(ways, 31, notes);
}

int main() {
  setvbuf(stdout, NULL, _IOLBF, 0);
  cudaMalloc(&ticket, 8), cudaMemset(ticket, 0, 8);
  for (int cols : {4096, 8192, 16384, 32768}) {
    const size_t bytes = (size_t)ROWS * cols * 2;
    std::vector<uint16_t> host(bytes / 2);
    unsigned seed = 1;
    for (auto &h : host) seed = seed * 1664525 + 1013904223, h = (uint16_t)(0x3e00 + (seed >> 16 & 0x81ff));
    void *of[5];
    for (void *&m : of) {
      cudaMalloc(&m, bytes), cudaMemcpy(m, host.data(), bytes, cudaMemcpyHostToDevice);
      std::rotate(host.begin(), host.begin() + 12345, host.end());
    }
    float *rstd;
    cudaMalloc(&rstd, ROWS * sizeof *rstd);
    p = norm_plain{};
    p.cols = cols, p.rows = ROWS, p.team = cols / 32, p.w = of[4], p.rstd = rstd, p.eps = 1e-6f;
#ifdef STAYS
    p.stays = true;
#endif
    p.x = {of[0], cols}, p.residual = {of[1], cols}, p.y = {of[2], cols}, p.s = {of[3], cols};
    p.scale = {(bf16 *)of[4] + cols, cols}, p.shift = {(bf16 *)of[4] + 9 * cols, cols}, p.share = ROWS / 8;
    p.scale_dtype = p.shift_dtype = TIGON_BF16;
    in_turns("rms_norm", ways_of<NORM_RMS>());
    in_turns("fused_add_rms_norm", ways_of<NORM_ADD_RMS>());
    if (cols <= 16384) in_turns("modulated_rms_norm", ways_of<NORM_MODULATED>());
    for (void *m : of) cudaFree(m);
    cudaFree(rstd);
  }
}
