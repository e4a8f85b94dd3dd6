/* Study: elementwise forwards in bf16 as a model meets them, one cold call each, all ways in turns. Build and run:
 *   nvcc -std=c++17 -O3 -gencode arch=compute_90,code=sm_90 -Isrc -Iinclude docs/lab/swiglu/cuda_flat.cu -o cuda_flat
 *   ./cuda_flat [CUBIN KERNEL THREADS ELEMENTS_OF_A_BLOCK]...
 * A cubin is a peer's swiglu, (a, b, c, n), as torch.compile leaves it in TRITON_CACHE_DIR. */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>

#include "../rms_norm/cuda_time.cuh"

#include "cuda/kernel/gate.cuh"

enum hint { PLAIN, STREAM, FIRST, LAST };

template <hint H> __device__ inline uint4 load(const uint4 *p) {
  uint4 v;
  if (H == PLAIN) v = *p;
  if (H == STREAM) v = __ldcs(p);
  if (H == FIRST)
    asm volatile("{.reg .b64 policy; createpolicy.fractional.L2::evict_first.b64 policy, 1.0;"
                 " ld.global.L1::no_allocate.L2::cache_hint.v4.u32 {%0,%1,%2,%3}, [%4], policy;}"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
  return v;
}
template <hint H> __device__ inline void store(uint4 *p, uint4 v) {
  if (H == PLAIN) *p = v;
  if (H == STREAM) __stcs(p, v);
  if (H == FIRST)
    asm volatile("{.reg .b64 policy; createpolicy.fractional.L2::evict_first.b64 policy, 1.0;"
                 " st.global.L2::cache_hint.v4.u32 [%0], {%1,%2,%3,%4}, policy;}" ::"l"(p),
                 "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w));
  if (H == LAST)
    asm volatile("{.reg .b64 policy; createpolicy.fractional.L2::evict_last.b64 policy, 1.0;"
                 " st.global.L2::cache_hint.v4.u32 [%0], {%1,%2,%3,%4}, policy;}" ::"l"(p),
                 "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w));
}

struct swiglu_op {
  enum { IN = 2 };
  __device__ static float of(const float (&x)[2]) { return activate_times<bf16, ACT_SILU>(x[0], x[1]); }
};
struct relu_op {
  enum { IN = 1 };
  __device__ static float of(const float (&x)[1]) {
    const float r = x[0] < 0 ? 0.0f : x[0];
    return r * r;
  }
};
/* n packs; a block has PACKS tiles of THREADS packs side by side. */
template <class OP, int THREADS, int PACKS, hint L, hint S, int BLOCKS>
__global__ void __launch_bounds__(THREADS, BLOCKS) flat(const uint4 *a, const uint4 *b, uint4 *c, unsigned n) {
  const unsigned first = blockIdx.x * (THREADS * PACKS) + threadIdx.x;
  uint4 x[PACKS][2];
#pragma unroll
  for (int k = 0; k < PACKS; ++k) {
    if (first + k * THREADS >= n) continue;
    x[k][0] = load<L>(a + first + k * THREADS);
    if (OP::IN == 2) x[k][1] = load<L>(b + first + k * THREADS);
  }
#pragma unroll
  for (int k = 0; k < PACKS; ++k) {
    if (first + k * THREADS >= n) continue;
    float wide[OP::IN][8], out[8];
    for (int i = 0; i < OP::IN; ++i) unpack_chunk<bf16, 8>(chunk<bf16, 8>{x[k][i]}, wide[i]);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      float one[OP::IN];
      for (int i = 0; i < OP::IN; ++i) one[i] = wide[i][j];
      out[j] = OP::of(one);
    }
    store<S>(c + first + k * THREADS, pack_chunk<bf16, 8>(out).bits);
  }
}

/* The library's: of rows at one pitch, and of any rows. */
__global__ void __launch_bounds__(FLAT_THREADS, 6) library_plain(const __grid_constant__ flat_plain p) {
  flat_map_plain<bf16, 2, 1>(p, gate_plain<bf16, ACT_SILU>::fwd);
}
__global__ void __launch_bounds__(FLAT_THREADS, 6)
    library_wide(const __grid_constant__ tigon_gate_fwd_problem p, const __grid_constant__ flat_walk walk) {
  gate_any<bf16, 8, ACT_SILU>(p, walk);
}

static uint4 *a, *b, *c, *d, *e; /* d and e: what the next kernel has of its own */
static int64_t packs;

/* What a call leaves in the L2 counts with the next one: which reads c, or copies what it has of its own. */
__global__ void __launch_bounds__(256, 8) next_kernel(const uint4 *from, uint4 *to, unsigned n) {
  const unsigned i = blockIdx.x * 256 + threadIdx.x;
  if (i < n) to[i] = from[i];
}
static way then(way one, bool reads) {
  const std::function<void()> first = one.launch;
  one.launch = [=] {
    first();
    next_kernel<<<(unsigned)((packs + 255) / 256), 256>>>(reads ? c : d, e, (unsigned)packs);
  };
  one.name += reads ? ", then c is read" : ", then others are";
  return one;
}

template <class OP, int THREADS, int PACKS, hint L = PLAIN, hint S = PLAIN, int BLOCKS = 2048 / THREADS>
static way flat_way(const char *name) {
  const unsigned blocks = (unsigned)((packs + THREADS * PACKS - 1) / (THREADS * PACKS));
  char text[99];
  snprintf(text, sizeof text, "%s, %d threads x %d, %d blocks an SM", name, THREADS, PACKS, BLOCKS);
  return {text, [=] { flat<OP, THREADS, PACKS, L, S, BLOCKS><<<blocks, THREADS>>>(a, b, c, (unsigned)packs); }, {}};
}

static way library_plain_way(int64_t rows) {
  const int each = (int)(packs / rows);
  const flat_plain p = {each, {each, each, each}, {a, b, c}};
  const dim3 grid((unsigned)((each + FLAT_THREADS - 1) / FLAT_THREADS), (unsigned)rows);
  return {"library, plain, rows: " + std::to_string(rows), [=] { library_plain<<<grid, FLAT_THREADS>>>(p); }, {}};
}
static way library_wide_way() {
  tigon_gate_fwd_problem p = {};
  p.space = {1, 1, 1}, p.cols = packs * 8, p.dtype = TIGON_BF16, p.gate_mult = p.down_mult = 1;
  p.a.data = a, p.b.data = b, p.c.data = c;
  flat_walk walk = {};
  walk.team = FLAT_THREADS, walk.team_bits = FLAT_BITS, walk.one_row = true;
  walk.tiles = (unsigned)((packs + FLAT_THREADS - 1) / FLAT_THREADS);
  return {"library, wide", [=] { library_wide<<<walk.tiles, FLAT_THREADS>>>(p, walk); }, {}};
}

static way cubin_way(char **of) {
  cudaLibrary_t library;
  cudaKernel_t kernel;
  if (cudaLibraryLoadFromFile(&library, of[0], NULL, NULL, 0, NULL, NULL, 0) != cudaSuccess ||
      cudaLibraryGetKernel(&kernel, library, of[1]) != cudaSuccess)
    printf("%s is not to be had\n", of[0]), exit(1);
  const int threads = atoi(of[2]), each = atoi(of[3]);
  const std::string name = std::string("cubin ") + of[1] + " " + of[2] + " " + of[3];
  return {name,
          [=] {
            void *x = a, *y = b, *z = c, *none = NULL;
            int n = (int)(packs * 8);
            void *arguments[] = {&x, &y, &z, &n, &none, &none};
            cudaLaunchKernel((void *)kernel, (unsigned)((n + each - 1) / each), threads, arguments, 0, 0);
          },
          {}};
}

/* Each is checked against the first, but for a unit in the last place. */
static void in_turns(const char *title, std::vector<way> ways) {
  std::vector<uint16_t> first((size_t)packs * 8), host((size_t)packs * 8);
  std::vector<std::string> wrong(ways.size());
  for (size_t w = 0; w < ways.size(); ++w) {
    cudaMemset(c, 0xff, packs * 16);
    ways[w].launch();
    cudaMemcpy(host.data(), c, packs * 16, cudaMemcpyDeviceToHost);
    if (w == 0) first = host;
    size_t off = 0;
    for (size_t i = 0; i < host.size(); ++i) off += abs((int)host[i] - (int)first[i]) > 1;
    if (off || cudaGetLastError() != cudaSuccess) wrong[w] = "  WRONG";
  }
  printf("%s, %.0f MiB a tensor: us, quartiles\n", title, packs * 16.0 / (1 << 20));
  time_in_turns(ways, 31, wrong);
}

int main(int count, char **arguments) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  for (int64_t cols : {14336, 18944, 4096}) {
    packs = 8192 * cols / 8;
    std::vector<uint16_t> host((size_t)packs * 8);
    unsigned seed = 1;
    for (auto &h : host) seed = seed * 1664525 + 1013904223, h = (uint16_t)(0x3e00 + (seed >> 16 & 0x81ff));
    for (uint4 **m : {&a, &b, &c, &d, &e}) {
      cudaMalloc(m, packs * 16), cudaMemcpy(*m, host.data(), packs * 16, cudaMemcpyHostToDevice);
      std::rotate(host.begin(), host.begin() + 12345, host.end());
    }
    std::vector<way> ways = {library_wide_way(), library_plain_way(1), library_plain_way(8192)};
    for (int i = 1; i + 3 < count; i += 4) ways.push_back(cubin_way(arguments + i));
    typedef swiglu_op G;
    ways.push_back(flat_way<G, 64, 1, PLAIN, PLAIN, 24>("plain"));
    ways.push_back(flat_way<G, 128, 1>("plain"));
    ways.push_back(flat_way<G, 256, 1>("plain"));
    ways.push_back(flat_way<G, 256, 1, PLAIN, PLAIN, 6>("plain"));
    ways.push_back(flat_way<G, 512, 1>("plain"));
    ways.push_back(flat_way<G, 1024, 1>("plain"));
    ways.push_back(flat_way<G, 256, 2, PLAIN, PLAIN, 6>("plain"));
    ways.push_back(flat_way<G, 256, 1, STREAM, PLAIN, 6>("load stream"));
    ways.push_back(flat_way<G, 256, 1, FIRST, PLAIN, 6>("load evict_first"));
    ways.push_back(flat_way<G, 256, 1, PLAIN, STREAM, 6>("store stream"));
    ways.push_back(flat_way<G, 256, 1, PLAIN, LAST, 6>("store evict_last"));
    for (bool reads : {true, false}) {
      ways.push_back(then(flat_way<G, 256, 1, PLAIN, PLAIN, 6>("plain"), reads));
      ways.push_back(then(flat_way<G, 256, 1, PLAIN, LAST, 6>("store evict_last"), reads));
    }
    in_turns("swiglu", ways);
    typedef relu_op R;
    in_turns(
        "relu_squared",
        {flat_way<R, 256, 1>("plain"), flat_way<R, 256, 1, PLAIN, PLAIN, 4>("plain"), flat_way<R, 128, 1>("plain"),
         flat_way<R, 512, 1>("plain"), flat_way<R, 1024, 1>("plain"), flat_way<R, 256, 2>("plain"),
         flat_way<R, 256, 4, PLAIN, PLAIN, 6>("plain"), flat_way<R, 256, 1, FIRST, PLAIN>("load evict_first"),
         flat_way<R, 256, 1, PLAIN, STREAM>("store stream"), flat_way<R, 256, 1, PLAIN, LAST>("store evict_last"),
         then(flat_way<R, 256, 1>("plain"), true), then(flat_way<R, 256, 1, PLAIN, LAST>("store evict_last"), true),
         then(flat_way<R, 256, 1>("plain"), false), then(flat_way<R, 256, 1, PLAIN, LAST>("store evict_last"), false),
         flat_way<R, 256, 1, STREAM, STREAM>("stream, stream")});
    for (uint4 *m : {a, b, c, d, e}) cudaFree(m);
  }
}
