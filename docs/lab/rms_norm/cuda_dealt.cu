/* Study: rms_norm backward with dw in bf16 (llama casting), one cold call: how rows are dealt out to blocks, what is held
 * of a row, how its sum is waited for, and one launch instead of two. Build and run:
 *   nvcc -std=c++17 -O3 -arch=sm_90 -Isrc -Iinclude docs/lab/rms_norm/cuda_dealt.cu -o cuda_dealt && ./cuda_dealt */
#include <chrono>
#include <cstdio>
#include <vector>

#include "cuda_time.cuh"

#include <cooperative_groups.h>
#include <cuda_pipeline.h>

#include "cuda/kernel/chunk.cuh"
#include "cuda/kernel/cluster.cuh"
#include "cuda/kernel/column_sum.cuh"
#include "cuda/kernel/element.cuh"
#include "plan/plan.h"

extern __shared__ uint4 stages[];

struct problem {
  const bf16 *dy, *x, *w;
  bf16 *dx, *dw;
  const float *rstd;
  float *slabs;
  int rows, cols, team, ranges;
  float w_offset;
  bool rounds;
};
/* COPY: dx is dy ^ x, the rows' way through memory alone. HELD: g and xhat in f32; ONE_BY_ONE: the same, each xhat rounded
 * by a conversion of its own. KEPT: dy and x as they came. REREAD: out of shared memory again. */
enum mode { COPY, HELD, ONE_BY_ONE, KEPT, REREAD };
template <int WARPS> struct mail_box {
  enum { BOXES = 4 };
  uint64_t arrived[16][BOXES];
  float of[BOXES][WARPS];
};
__device__ inline void wait_for(uint64_t *at, uint32_t phase) {
  const uint32_t a = shared_address(at);
  for (uint32_t done = 0; !done;)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(a), "r"(phase)
                 : "memory");
}
/* LATE: a row's sum is taken after the next row's has been posted. DEALT: block i of n has rows i, i + n, ..., else a
 * range. CL: blocks of a cluster. END: 1: one cooperative launch, in which the slabs are added up behind a grid-wide
 * barrier. */
template <int BLOCK, int PACKS, int STAGES, int MODE, bool LATE, bool DEALT, int MIN, int CL, int END>
__global__ void __launch_bounds__(BLOCK, MIN) rows_bwd(const __grid_constant__ problem p) {
  constexpr int N = 8, STREAM = PACKS * BLOCK, WARPS = BLOCK / 32;
  __shared__ team_space<1> space;
  __shared__ mail_box<WARPS * CL> mail;
  const team t = team_of(p.team);
  const cluster cl = CL > 1 ? cluster_of_block() : cluster{0, 1};
  const int first = cl.rank * t.threads * PACKS * N, range = blockIdx.x / CL, cols = p.cols;
  const int warps = t.threads / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int64_t begin, end;
  int step;
  if (DEALT)
    begin = range, end = p.rows, step = p.ranges;
  else
    tigon_plan_range(p.rows, p.ranges, range, &begin, &end), step = 1;
  begin += (int64_t)t.index * step;
  step *= t.count;
  if (LATE) {
    if (threadIdx.x < t.count * 4)
      asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(&mail.arrived[0][0] + threadIdx.x)),
                   "r"(CL > 1 ? 1 : warps)
                   : "memory");
    if (CL > 1) {
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
      cooperative_groups::this_cluster().sync();
    } else
      __syncthreads();
  }
  float dw[PACKS * N] = {0};
  const int own = first + t.rank * N;
  constexpr bool WREG = BLOCK * PACKS <= 1024;
  uint4 w[PACKS];
#pragma unroll
  for (int k = 0; k < PACKS; ++k)
    if (WREG)
      w[k] = own + k * t.threads * N < cols ? *(const uint4 *)(p.w + own + k * t.threads * N) : uint4{0, 0, 0, 0};
  int64_t ahead = begin;
  int stage_ahead = 0;
  auto fetch = [&]() {
    if (ahead < end) {
      uint4 *stage = stages + stage_ahead * 2 * STREAM + threadIdx.x;
      const int64_t at = ahead * cols + own;
#pragma unroll
      for (int k = 0; k < PACKS; ++k)
        if (own + k * t.threads * N < cols) {
          __pipeline_memcpy_async(stage + k * BLOCK, p.dy + at + k * t.threads * N, 16);
          __pipeline_memcpy_async(stage + STREAM + k * BLOCK, p.x + at + k * t.threads * N, 16);
        }
    }
    __pipeline_commit();
    ahead += step;
    stage_ahead = stage_ahead + 1 == STAGES ? 0 : stage_ahead + 1;
  };
  constexpr int AHEAD = MODE == REREAD ? (LATE ? STAGES - 2 : STAGES - 1) : STAGES;
  for (int i = 0; i < AHEAD; ++i) fetch();
  const float share = 1.0f / (float)cols;
  float next_rstd = begin < end ? __ldg(p.rstd + begin) : 0, rstd_before = 0;
  int turn = 0, now = 0, before = 0;
  uint4 ka[PACKS], kb[PACKS]; /* kept */
  float hg[MODE == HELD || MODE == ONE_BY_ONE ? PACKS * N : 1], hx[MODE == HELD || MODE == ONE_BY_ONE ? PACKS * N : 1];
  auto w_of = [&](int k) { return WREG ? w[k] : __ldg((const uint4 *)(p.w + own + k * t.threads * N)); };
  auto word = [](const uint4 &v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; };
  auto weights = [&](unsigned v, float(&f)[2]) {
    widen(v, f, bf16());
    if (p.w_offset != 0) f[0] += p.w_offset, f[1] += p.w_offset;
  };
  auto total = [&](int of) { /* LATE: of row `of` of this team */
                             wait_for(&mail.arrived[t.index][of & 3], (of >> 2) & 1);
                             float v = mail.of[of & 3][t.index * warps + (lane & (warps - 1))];
                             if (CL > 1) v += mail.of[of & 3][WARPS + (lane & (warps - 1))];
                             for (int d = warps / 2; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);
                             return v;
  };
  auto put = [&](int64_t r, int slot, float rstd, float dot) {
    const float mean = dot * share, c = rstd * rstd * mean;
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
      if (own + k * t.threads * N >= cols) continue;
      float out[N];
      if (MODE == HELD || MODE == ONE_BY_ONE) {
#pragma unroll
        for (int j = 0; j < N; ++j) out[j] = rstd * fmaf(-hx[k * N + j], mean, hg[k * N + j]);
      } else {
        const uint4 *stage = stages + slot * 2 * STREAM + threadIdx.x;
        const uint4 va = MODE == KEPT ? ka[k] : stage[k * BLOCK], vb = MODE == KEPT ? kb[k] : stage[STREAM + k * BLOCK],
                    vw = w_of(k);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float a[2], b[2], f[2];
          widen(word(va, i), a, bf16()), widen(word(vb, i), b, bf16()), weights(word(vw, i), f);
          out[2 * i] = fmaf(-b[0], c, rstd * (a[0] * f[0])), out[2 * i + 1] = fmaf(-b[1], c, rstd * (a[1] * f[1]));
        }
      }
      store_pack(p.dx + r * cols + own + k * t.threads * N, packed<bf16>(out));
    }
  };
  int64_t r = begin;
  for (; r < end; r += step) {
    const float rstd = next_rstd;
    if (r + step < end) next_rstd = __ldg(p.rstd + r + step);
    if (MODE == REREAD) {
      fetch();
      __pipeline_wait_prior(AHEAD);
    } else
      __pipeline_wait_prior(STAGES - 1);
    const uint4 *stage = stages + now * 2 * STREAM + threadIdx.x;
    if (MODE == COPY) {
#pragma unroll
      for (int k = 0; k < PACKS; ++k) {
        if (own + k * t.threads * N >= cols) continue;
        uint4 a = stage[k * BLOCK], b = stage[STREAM + k * BLOCK];
        a.x ^= b.x, a.y ^= b.y, a.z ^= b.z, a.w ^= b.w;
        store_16_bytes(p.dx + r * cols + own + k * t.threads * N, a);
      }
      fetch();
      now = now + 1 == STAGES ? 0 : now + 1;
      continue;
    }
    uint4 na[PACKS], nb[PACKS];
    float dot[1] = {0};
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
      if (own + k * t.threads * N >= cols) continue;
      na[k] = stage[k * BLOCK], nb[k] = stage[STREAM + k * BLOCK];
      const uint4 vw = w_of(k);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float a[2], b[2], f[2], xr[2];
        widen(word(na[k], i), a, bf16()), widen(word(nb[k], i), b, bf16()), weights(word(vw, i), f);
#pragma unroll
        for (int j = 0; j < 2; ++j) b[j] *= rstd, f[j] *= a[j], dot[0] = fmaf(f[j], b[j], dot[0]);
        if (MODE == HELD || MODE == ONE_BY_ONE)
#pragma unroll
          for (int j = 0; j < 2; ++j) hg[k * N + 2 * i + j] = f[j], hx[k * N + 2 * i + j] = b[j];
        if (MODE == ONE_BY_ONE) {
          xr[0] = p.rounds ? rounded<bf16>(b[0]) : b[0], xr[1] = p.rounds ? rounded<bf16>(b[1]) : b[1];
        } else {
          float rb[2];
          widen(narrow(b, bf16()), rb, bf16());
          xr[0] = p.rounds ? rb[0] : b[0], xr[1] = p.rounds ? rb[1] : b[1];
        }
        dw[k * N + 2 * i] = fmaf(a[0], xr[0], dw[k * N + 2 * i]),
                       dw[k * N + 2 * i + 1] = fmaf(a[1], xr[1], dw[k * N + 2 * i + 1]);
      }
    }
    if (MODE != REREAD) fetch();
    if (LATE) {
      const float part = warp_all<op_sum>(dot[0]);
      const int box = turn & 3;
      if (CL == 1) {
        if (lane == 0) {
          mail.of[box][warp] = part;
          asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(&mail.arrived[t.index][box]))
                       : "memory");
        }
      } else {
        if (threadIdx.x == 0)
          asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(&mail.arrived[0][box])),
                       "r"(CL * WARPS * 4)
                       : "memory");
        if (lane < CL)
          asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(
                           shared_address(&mail.of[box][cl.rank * WARPS + warp], lane)),
                       "f"(part), "r"(shared_address(&mail.arrived[0][box], lane))
                       : "memory");
      }
      if (turn > 0) put(r - step, before, rstd_before, total(turn - 1));
    } else {
      team_all<op_sum, true>(t, space, turn & 1, dot);
    }
    if (MODE == KEPT)
#pragma unroll
      for (int k = 0; k < PACKS; ++k) {
        ka[k] = na[k], kb[k] = nb[k];
        asm volatile("" : "+r"(ka[k].x), "+r"(ka[k].y), "+r"(ka[k].z), "+r"(ka[k].w));
        asm volatile("" : "+r"(kb[k].x), "+r"(kb[k].y), "+r"(kb[k].z), "+r"(kb[k].w));
      }
    if (!LATE) put(r, now, rstd, dot[0]);
    before = now;
    rstd_before = rstd;
    now = now + 1 == STAGES ? 0 : now + 1;
    ++turn;
  }
  if (LATE && turn > 0) put(r - step, before, rstd_before, total(turn - 1));
  if (END == 0) column_sum_may_begin();
  __pipeline_wait_prior(0);
  float *slab = p.slabs + (int64_t)range * cols + first;
  const int width = t.threads * PACKS * N, left = cols - first < width ? cols - first : width;
  if (t.count == 1) {
#pragma unroll
    for (int k = 0; k < PACKS; ++k)
#pragma unroll
      for (int j = 0; j < N; j += 4)
        if (own + k * t.threads * N < cols)
          *(float4 *)&slab[own - first + k * t.threads * N + j] =
              make_float4(dw[k * N + j], dw[k * N + j + 1], dw[k * N + j + 2], dw[k * N + j + 3]);
  } else {
    float *sums = (float *)stages;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < PACKS; ++k)
#pragma unroll
      for (int j = 0; j < N; j += 4)
        *(float4 *)&sums[t.index * width + (k * t.threads + t.rank) * N + j] =
            make_float4(dw[k * N + j], dw[k * N + j + 1], dw[k * N + j + 2], dw[k * N + j + 3]);
    __syncthreads();
    for (int c = threadIdx.x; c < left; c += BLOCK) {
      float s = sums[c];
      for (int i = 1; i < t.count; ++i) s += sums[i * width + c];
      slab[c] = s;
    }
  }
  if (CL > 1) cooperative_groups::this_cluster().sync();
  if (END == 1) {
    cooperative_groups::this_grid().sync();
    constexpr int PARTS = BLOCK / 32;
    float *parts = (float *)stages;
    for (int c0 = blockIdx.x * 32; c0 < cols; c0 += gridDim.x * 32) {
      float sum = 0;
      const int c = c0 + lane;
#pragma unroll 8
      for (int s = warp; s < p.ranges; s += PARTS) sum += c < cols ? __ldcg(&p.slabs[(int64_t)s * cols + c]) : 0;
      __syncthreads();
      parts[warp * 32 + lane] = sum;
      __syncthreads();
      if (warp) continue;
      for (int i = 1; i < PARTS; ++i) sum += parts[i * 32 + lane];
      if (c < cols) p.dw[c] = from_f32<bf16>(sum);
    }
  }
}
__global__ void __launch_bounds__(512) column_sum(const __grid_constant__ problem p) {
  column_sum_await();
  column_sum_block(p.slabs, p.ranges, p.cols, (int64_t)blockIdx.x * 32, p.cols, p.dw, 0, TIGON_BF16, false);
}
__global__ void fill(uint16_t *a, int64_t n, unsigned seed) {
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
    uint64_t h = (i + 1) * 0x9E3779B97F4A7C15ull ^ seed * 0xBF58476D1CE4E5B9ull;
    h ^= h >> 31;
    h *= 0x94D049BB133111EBull;
    h ^= h >> 29;
    a[i] = 0x3f00 + (h & 0x80ff);
  }
}
__global__ void fill_f(float *a, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) a[i] = 0.5f + (i * 37 % 101) * 0.01f;
}
__global__ void compare(const bf16 *a, const bf16 *b, int64_t n, float *most) {
  float m = 0;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
    float d = fabsf(to_f32(a[i]) - to_f32(b[i])) / (fabsf(to_f32(b[i])) + 0.1f);
    m = d > m || d != d ? d : m;
  }
  if (!(m < *most)) atomicMax((int *)most, m != m ? 0x7fffffff : __float_as_int(m));
}
static bf16 *dy, *x, *dx, *w, *dw, *dx0, *dw0;
static float *rstd, *slabs, *most;
static int rows, cols;
static bool have0, only_few;
template <int BLOCK, int PACKS, int STAGES, int MODE, bool LATE, bool DEALT, int MIN, int CL, int END>
static void go() {
  auto kernel = rows_bwd<BLOCK, PACKS, STAGES, MODE, LATE, DEALT, MIN, CL, END>;
  const int most_cols = BLOCK * PACKS * 8;
  if ((cols + most_cols - 1) / most_cols > CL || cols <= most_cols * (CL / 2)) return;
  int team = 32;
  while (team * PACKS * 8 * CL < cols) team *= 2;
  if (BLOCK / team > 15 && team > 32) return;
  const int fit = 132 * MIN / CL, ranges = rows < fit ? rows : fit;
  const int bytes = std::max(STAGES * 2 * PACKS * BLOCK * 16, PACKS * BLOCK * 32);
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  auto launch = [&](bool sum) {
    const problem p = {dy, x, w, dx, dw, rstd, slabs, rows, cols, team, ranges, 0, true};
    cudaLaunchConfig_t config = {};
    config.gridDim = ranges * CL, config.blockDim = BLOCK, config.dynamicSmemBytes = bytes;
    cudaLaunchAttribute a[2];
    int n = 0;
    if (CL > 1)
      a[n].id = cudaLaunchAttributeClusterDimension, a[n].val.clusterDim.x = CL,
      a[n].val.clusterDim.y = a[n].val.clusterDim.z = 1, ++n;
    if (END) a[n].id = cudaLaunchAttributeCooperative, a[n].val.cooperative = 1, ++n;
    config.attrs = a, config.numAttrs = n;
    cudaLaunchKernelEx(&config, kernel, p);
    if (!END && sum) {
      cudaLaunchConfig_t c2 = {};
      c2.gridDim = (cols + 31) / 32, c2.blockDim = 512;
      a[0].id = cudaLaunchAttributeProgrammaticStreamSerialization, a[0].val.programmaticStreamSerializationAllowed = 1;
      c2.attrs = a, c2.numAttrs = 1;
      cudaLaunchKernelEx(&c2, column_sum, p);
    }
  };
  cudaMemset(dx, 0xff, (size_t)rows * cols * 2), cudaMemset(dw, 0xff, cols * 2);
  launch(true);
  cudaDeviceSynchronize();
  float e[2] = {0, 0};
  if (!have0 && MODE != COPY) {
    cudaMemcpy(dx0, dx, (size_t)rows * cols * 2, cudaMemcpyDeviceToDevice),
        cudaMemcpy(dw0, dw, cols * 2, cudaMemcpyDeviceToDevice);
    have0 = true;
  }
  cudaMemset(most, 0, 8);
  compare<<<264, 512>>>(dx, dx0, (int64_t)rows * cols, most), compare<<<1, 512>>>(dw, dw0, cols, most + 1);
  cudaMemcpy(e, most, 8, cudaMemcpyDeviceToHost);
  const double us = cold_us([&] { launch(true); }), alone = END ? 0 : cold_us([&] { launch(false); }),
               again = cold_us([&] { launch(true); });
  double host = 0;
  if (only_few) {
    cudaDeviceSynchronize();
    std::vector<double> t;
    for (int i = 0; i < 9; ++i) {
      auto h = std::chrono::steady_clock::now();
      for (int k = 0; k < 50; ++k) launch(true);
      t.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - h).count() / 50);
      cudaDeviceSynchronize();
    }
    std::sort(t.begin(), t.end());
    host = t[4];
  }
  cudaFuncAttributes at;
  cudaFuncGetAttributes(&at, kernel);
  static const char *names[] = {"copy", "held", "one by one", "kept", "reread"};
  printf(
      "  %4d x %d, %d st, %d/SM, cl %d %-7s %s %s %s: %3dr %3dl  %7.2f %7.2f  rows %7.2f  host %.2f  e %.1e %.1e %s\n",
      BLOCK, PACKS, STAGES, MIN, CL, names[MODE], LATE ? "late" : "    ", DEALT ? "dealt" : "range",
      END ? "coop" : "    ", at.numRegs, (int)at.localSizeBytes, us, again, alone, host, e[0], e[1],
      cudaGetErrorString(cudaDeviceSynchronize()));
}
int main() {
  setvbuf(stdout, NULL, _IOLBF, 0);
  const int shapes[][2] = {{8192, 1024},  {8192, 4096}, {8192, 8192}, {8192, 16384},
                           {8192, 32768}, {1, 4096},    {256, 4096}};
  for (auto &s : shapes) {
    rows = s[0], cols = s[1], have0 = false, only_few = rows < 1000;
    const size_t bytes = (size_t)rows * cols * 2;
    for (bf16 **t : {&dy, &x, &dx, &dx0}) cudaMalloc(t, bytes);
    fill<<<264, 512>>>((uint16_t *)dy, bytes / 2, 1), fill<<<264, 512>>>((uint16_t *)x, bytes / 2, 2);
    cudaMalloc(&w, cols * 2), cudaMalloc(&dw, cols * 2), cudaMalloc(&dw0, cols * 2), cudaMalloc(&rstd, rows * 4),
        cudaMalloc(&slabs, 132l * 4 * cols * 4), cudaMalloc(&most, 8);
    fill<<<1, 512>>>((uint16_t *)w, cols, 3), fill_f<<<1, 512>>>(rstd, rows);
    printf("%d x %d: floor %.2f us at 4280 GB/s\n", rows, cols, 3 * bytes / 4.28e6);
    go<512, 2, 3, ONE_BY_ONE, false, false, 1, 1, 0>();
    go<512, 2, 3, COPY, false, false, 1, 1, 0>();
    go<512, 2, 3, COPY, false, true, 1, 1, 0>();
    go<512, 2, 3, HELD, false, false, 1, 1, 0>();
    go<512, 2, 3, HELD, false, true, 1, 1, 0>();
    go<512, 2, 3, HELD, false, false, 1, 1, 1>();
    go<512, 2, 4, HELD, false, true, 1, 1, 0>();
    go<512, 2, 3, KEPT, false, true, 1, 1, 0>();
    go<512, 2, 4, KEPT, true, true, 1, 1, 0>();
    go<512, 1, 6, KEPT, true, true, 1, 1, 0>();
    go<512, 4, 2, KEPT, false, true, 1, 1, 0>();
    go<512, 4, 3, KEPT, false, true, 1, 1, 0>();
    go<512, 4, 3, REREAD, false, true, 1, 1, 0>();
    go<1024, 1, 4, KEPT, false, true, 1, 1, 0>();
    go<1024, 1, 4, KEPT, true, true, 1, 1, 0>();
    go<1024, 1, 4, HELD, false, true, 1, 1, 0>();
    go<1024, 2, 3, COPY, false, false, 1, 1, 0>();
    go<1024, 2, 3, COPY, false, true, 1, 1, 0>();
    go<1024, 2, 3, KEPT, false, false, 1, 1, 0>();
    go<1024, 2, 3, KEPT, false, true, 1, 1, 0>();
    go<1024, 2, 3, KEPT, true, true, 1, 1, 0>();
    go<1024, 2, 3, REREAD, false, false, 1, 1, 0>();
    go<1024, 2, 3, REREAD, false, true, 1, 1, 0>();
    go<1024, 2, 3, REREAD, true, true, 1, 1, 0>();
    go<1024, 2, 3, REREAD, false, true, 1, 1, 1>();
    go<1024, 2, 3, REREAD, true, false, 1, 2, 0>();
    go<1024, 2, 3, REREAD, true, true, 1, 2, 0>();
    go<1024, 2, 3, KEPT, true, true, 1, 2, 0>();
    go<1024, 2, 3, REREAD, true, true, 1, 2, 1>();
    go<1024, 2, 3, COPY, true, true, 1, 2, 0>();
    go<512, 4, 3, REREAD, true, true, 1, 2, 0>();
    go<512, 4, 3, KEPT, true, true, 1, 2, 0>();
    for (bf16 *t : {dy, x, dx, dx0, w, dw, dw0}) cudaFree(t);
    cudaFree(rstd), cudaFree(slabs), cudaFree(most);
  }
}
