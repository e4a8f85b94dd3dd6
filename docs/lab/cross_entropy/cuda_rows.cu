/* Study: loss and gradient of cross_entropy, bf16: where a row waits for the sums over all of it. Build and run:
 *   nvcc -std=c++17 -O3 -arch=sm_90 -Isrc -Iinclude docs/lab/cross_entropy/cuda_rows.cu -o rows && ./rows */
#include <cstdio>
#include <cstdlib>

#include "../rms_norm/cuda_time.cuh"
#include "cuda/cross_entropy.cu"

enum { N = pack<bf16>::N };

/* The larger ones of two elements each; a NaN does not count. */
__device__ static inline unsigned most(unsigned a, unsigned b) {
  const __nv_bfloat162 m = __hmax2(*(const __nv_bfloat162 *)&a, *(const __nv_bfloat162 *)&b);
  return *(const unsigned *)&m;
}

/* Of a row, or a block's share of it, a thread has REGISTERS packs in registers and SHARED in shared memory. */
template <int BLOCK, int REGISTERS, int SHARED, int MIN, bool GRADIENT>
__global__ void __launch_bounds__(BLOCK, MIN) rows(const __grid_constant__ ce_problem p, ce_walk walk) {
  constexpr int EACH = REGISTERS + SHARED;
  __shared__ float4 space[MOST_WARPS];
  const cluster cl = cluster_of_block();
  const int64_t r = blockIdx.x / cl.size;
  const int count = (int)p.cols / N, step = cl.size * BLOCK, first = cl.rank * BLOCK + (int)threadIdx.x;
  const uint4 *x = (const uint4 *)row_of<bf16>(p.space, p.logits, r);
  uint4 *d = (uint4 *)row_of<bf16>(p.space, p.dlogits, r);
  const uint4 none = {0xff80ff80u, 0xff80ff80u, 0xff80ff80u, 0xff80ff80u};
  uint4 v[REGISTERS ? REGISTERS : 1];
#pragma unroll
  for (int k = REGISTERS; k < EACH; ++k) {
    uint4 *to = ce_held + (k - REGISTERS) * BLOCK + threadIdx.x;
    if (first + k * step < count)
      __pipeline_memcpy_async(to, x + first + k * step, 16);
    else
      *to = none;
  }
  __pipeline_commit();
#pragma unroll
  for (int k = 0; k < REGISTERS; ++k) v[k] = first + k * step < count ? x[first + k * step] : none;
  const bool lead = threadIdx.x == 0 && cl.rank == 0;
  bool out_of_range;
  const int64_t label = tigon_cross_entropy_label(&p, r, &out_of_range);
  const float x_label = lead ? to_f32(((const bf16 *)x)[label]) : 0;
  const row_terms terms = row_terms_of<false>(p, walk, r, 0);
  auto kept = [&](int k) -> uint4 { return k < REGISTERS ? v[k] : ce_held[(k - REGISTERS) * BLOCK + threadIdx.x]; };
  uint4 all = none;
  auto look = [&](const uint4 &a) {
    all = uint4{most(all.x, a.x), most(all.y, a.y), most(all.z, a.z), most(all.w, a.w)};
  };
#pragma unroll
  for (int k = 0; k < REGISTERS; ++k) look(v[k]);
  if (SHARED) __pipeline_wait_prior(0);
#pragma unroll
  for (int k = REGISTERS; k < EACH; ++k) look(kept(k));
  const unsigned last = most(most(all.x, all.y), most(all.z, all.w));
  const logit_map map = {1, 0, 0};
  row_sums s = no_sums<true>(map);
  s.top = fmaxf(__uint_as_float(last << 16), __uint_as_float(last & 0xffff0000u));
  s.at = exponent_of(s.top);
  keep_packed(v);
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    float z[N], part[2] = {0, 0};
    unpack(pack_of<bf16>(kept(k)), z);
#pragma unroll
    for (int j = 0; j < N; ++j) part[j % 2] += exp2_of(s.at, z[j]);
    s.sum += part[0] + part[1];
  }
  warp_sums<true>(map, s);
  if (threadIdx.x % WARP == 0) space[threadIdx.x / WARP] = make_float4(s.top, s.sum, 0, 0);
  team t = team_of(BLOCK);
  row_sync(t, cl);
  const int lane = threadIdx.x % WARP;
  row_sums whole = no_sums<true>(map);
  for (int i = lane; i < BLOCK / WARP * cl.size; i += WARP) {
    const float4 part = peer_value(cl, &space[i % (BLOCK / WARP)], i / (BLOCK / WARP));
    row_sums one = {part.x, 0, exponent_of(part.x), part.y};
    whole.top = fmaxf(whole.top, part.x);
    move_reference<true>(map, whole.top, whole);
    move_reference<true>(map, whole.top, one);
    whole.sum += one.sum;
  }
  warp_sums<true>(map, whole);
  s = whole;
  row_leave(cl);
  if (GRADIENT) {
    const gradient g = gradient_of(p, terms, label, lse_of<float, true>(map, s), s.at, s.sum);
    keep_packed(v);
#pragma unroll
    for (int k = 0; k < EACH; ++k) {
      const int i = first + k * step;
      if (i < count) store_16_bytes(d + i, gradient_pack<bf16, true>(p, map, g, kept(k), i * N));
    }
  }
  if (lead) store_losses<true>(p, r, label, x_label, terms.weight_sum, lse_of<double, true>(map, s), s);
  row_left(cl);
}

template <class V> static V *memory(int64_t count) {
  V *at;
  if (cudaMalloc(&at, count * sizeof(V)) != cudaSuccess) exit(1);
  return at;
}
__global__ void fill(bf16 *x, int64_t n) {
  for (int64_t i = blockIdx.x * 256ll + threadIdx.x; i < n; i += gridDim.x * 256ll) {
    unsigned h = (unsigned)i * 2654435761u ^ (unsigned)(i >> 20);
    h ^= h >> 15, h *= 0x85ebca6bu, h ^= h >> 13;
    x[i] = __float2bfloat16((int)(h & 0xffff) * 0x1p-12f - 8);
  }
}
__global__ void label_rows(int64_t *labels, float *inverse, int rows, int64_t cols) {
  *inverse = 1.0f / rows;
  for (int i = threadIdx.x; i < rows; i += 256) labels[i] = i * 7919ll % cols;
}
__global__ void differences(const unsigned *a, const unsigned *b, int64_t n, unsigned long long *count) {
  unsigned mine = 0;
  for (int64_t i = blockIdx.x * 256ll + threadIdx.x; i < n; i += gridDim.x * 256ll) mine += a[i] != b[i];
  atomicAdd(count, mine);
}

static bf16 *right;
static unsigned long long *wrong;

template <class F>
static void time_rows(const char *name, const ce_problem &p, F kernel, int block, int packs, int cluster,
                      ce_walk walk) {
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, packs * block * 16);
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {(unsigned)cluster, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(p.space.rows * cluster), config.blockDim = dim3(block),
  config.dynamicSmemBytes = packs * block * 16;
  config.attrs = &attribute, config.numAttrs = 1;
  const int64_t n = p.space.rows * p.cols;
  if (p.dlogits.data) cudaMemset(p.dlogits.data, 0xff, n * 2);
  const double us = cold_us([&] { cudaLaunchKernelEx(&config, kernel, p, walk); });
  unsigned long long count = 0;
  std::vector<float> loss(p.space.rows);
  cudaMemcpy(loss.data(), p.token_loss, p.space.rows * 4, cudaMemcpyDeviceToHost);
  if (p.dlogits.data && !right) {
    right = memory<bf16>(n);
    cudaMemcpy(right, p.dlogits.data, n * 2, cudaMemcpyDeviceToDevice);
  } else if (p.dlogits.data) {
    cudaMemset(wrong, 0, 8);
    differences<<<1056, 256>>>((unsigned *)right, (unsigned *)p.dlogits.data, n / 2, wrong);
    cudaMemcpy(&count, wrong, 8, cudaMemcpyDeviceToHost);
  }
  double all = 0;
  for (float l : loss) all += l;
  printf("%-10s %6d %-44s %8.1f us  other words %.2e, loss %.7f %s\n", p.dlogits.data ? "both" : "loss", (int)p.cols,
         name, us, (double)count / (n / 2), all / p.space.rows, cudaGetErrorString(cudaGetLastError()));
}

template <int BLOCK, int REGISTERS, int SHARED, int MIN> static void time_row(const ce_problem &p, int cluster) {
  if ((int64_t)(REGISTERS + SHARED) * BLOCK * cluster * N < p.cols) return;
  char name[80];
  snprintf(name, sizeof name, "%d x (%d + %d shared), %d an SM, cluster %d", BLOCK, REGISTERS, SHARED, MIN, cluster);
  time_rows(name, p,
            p.dlogits.data ? rows<BLOCK, REGISTERS, SHARED, MIN, true> : rows<BLOCK, REGISTERS, SHARED, MIN, false>,
            BLOCK, SHARED, cluster, ce_walk{BLOCK});
}

int main() {
  const int count = 8192;
  wrong = memory<unsigned long long>(1);
  for (int64_t cols : {32000, 128256}) {
    ce_problem p = {};
    p.space = {count, 1, count}, p.cols = cols, p.dtype = TIGON_BF16, p.label_dtype = TIGON_I64;
    p.logits = {memory<bf16>(count * cols), {0, 0, cols}}, p.dlogits = {memory<bf16>(count * cols), {0, 0, cols}};
    int64_t *labels = memory<int64_t>(count);
    p.labels = labels, p.inverse = memory<float>(1), p.token_loss = memory<float>(count);
    p.inverse_temperature = p.grad_scale = 1;
    fill<<<1056, 256>>>((bf16 *)p.logits.data, count * cols), label_rows<<<1, 256>>>(labels, p.inverse, count, cols);
    right = NULL;
    const int parts = cols > 32768 ? 4 : 1, packs = (int)((cols / N + parts * 256 - 1) / (parts * 256));
    time_rows("library, 256 x 16 shared, 3 an SM", p, cross_entropy_held_plain_bf16, 256, packs, parts,
              ce_walk{256, packs});
    for (int gradient = 1; gradient >= 0; --gradient) {
      if (!gradient) {
        p.dlogits.data = NULL;
        time_rows("library, walked", p, cross_entropy_walked_plain_bf16, 256, 0, 1, ce_walk{256});
      }
      time_row<512, 0, 8, 3>(p, parts), time_row<512, 8, 0, 2>(p, parts), time_row<512, 4, 4, 3>(p, parts);
      time_row<256, 8, 8, 4>(p, parts), time_row<256, 4, 12, 4>(p, parts), time_row<1024, 4, 0, 1>(p, parts);
      if (parts == 1) continue;
      time_row<512, 8, 9, 2>(p, 2), time_row<1024, 0, 8, 1>(p, 2), time_row<1024, 0, 10, 1>(p, 2);
      time_row<1024, 4, 12, 1>(p, 1), time_row<1024, 8, 8, 1>(p, 1), time_row<512, 4, 0, 3>(p, 8),
          time_row<512, 0, 4, 3>(p, 8);
    }
    cudaFree(p.logits.data), cudaFree(p.dlogits.data), cudaFree(right);
  }
}
