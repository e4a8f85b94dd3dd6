/* Study: embedding forward in bf16 as a model meets it, one cold call each, all ways in turns. Build and run:
 *   nvcc -std=c++17 -O3 -gencode arch=compute_90,code=sm_90 -Isrc -Iinclude docs/lab/embedding/cuda_fwd.cu -o cuda_fwd && ./cuda_fwd
 * Every way is checked against the library's. */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>

#include "../rms_norm/cuda_time.cuh"

#include "cuda/embedding.cu"

struct problem {
  const int64_t *idx;
  const uint4 *table;
  uint4 *y;
  int rows, packs, vocab;
  int32_t *flag;
};

/* A thread has PACKS packs, THREADS apart, of each of ROWS rows; by the grid's first extent go the tiles of a row, or the rows. */
template <int THREADS, int PACKS, int ROWS, bool TILES_FIRST, int BLOCKS>
__global__ void __launch_bounds__(THREADS, BLOCKS) gather(const __grid_constant__ problem p) {
  const int tile = (int)(TILES_FIRST ? blockIdx.x : blockIdx.y), group = (int)(TILES_FIRST ? blockIdx.y : blockIdx.x);
  const int first = tile * (THREADS * PACKS) + (int)threadIdx.x, row = group * ROWS;
  int64_t index[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) index[r] = row + r < p.rows ? __ldg(p.idx + row + r) : -1;
  uint4 x[ROWS][PACKS];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    const bool legal = index[r] >= 0 && index[r] < p.vocab;
    const uint4 *from = p.table + index[r] * p.packs + first;
#pragma unroll
    for (int k = 0; k < PACKS; ++k)
      x[r][k] = legal && first + k * THREADS < p.packs ? from[k * THREADS] : uint4{0, 0, 0, 0};
    if (!legal && row + r < p.rows && first == 0) *p.flag = 1;
  }
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    uint4 *to = p.y + (int64_t)(row + r) * p.packs + first;
#pragma unroll
    for (int k = 0; k < PACKS; ++k)
      if (row + r < p.rows && first + k * THREADS < p.packs) to[k * THREADS] = x[r][k];
  }
}

static problem p;

template <int THREADS, int PACKS, int ROWS, bool TILES_FIRST, int BLOCKS = 2048 / THREADS> static way gather_way() {
  const unsigned tiles = (unsigned)((p.packs + THREADS * PACKS - 1) / (THREADS * PACKS));
  const unsigned groups = (unsigned)((p.rows + ROWS - 1) / ROWS);
  const dim3 grid(TILES_FIRST ? tiles : groups, TILES_FIRST ? groups : tiles);
  char text[99];
  snprintf(text, sizeof text, "%d threads x %d packs x %d rows, %s first", THREADS, PACKS, ROWS,
           TILES_FIRST ? "tiles" : "rows");
  return {text, [=] { gather<THREADS, PACKS, ROWS, TILES_FIRST, BLOCKS><<<grid, THREADS>>>(p); }, {}};
}

static way library_way() {
  embedding_plain q = {p.rows,  p.packs * 8, 0,           TIGON_I64, p.idx, p.vocab,
                       p.table, p.packs * 8, p.packs * 8, p.y,       p.flag};
  while (q.team_bits < EMBEDDING_PLAIN_BITS && EMBEDDING_FWD_PACKS << q.team_bits < p.packs) ++q.team_bits;
  const int tile = EMBEDDING_FWD_PACKS << q.team_bits, each = EMBEDDING_PLAIN_THREADS >> q.team_bits;
  const dim3 grid((unsigned)((p.packs + tile - 1) / tile), (unsigned)((p.rows + each - 1) / each));
  return {"library", [=] { embedding_fwd_plain_bf16<<<grid, EMBEDDING_PLAIN_THREADS>>>(q); }, {}};
}

static void in_turns(std::vector<way> ways) {
  const size_t bytes = (size_t)p.rows * p.packs * 16;
  std::vector<char> first(bytes), host(bytes);
  std::vector<std::string> wrong(ways.size());
  for (size_t w = 0; w < ways.size(); ++w) {
    cudaMemset(p.y, 0xff, bytes);
    ways[w].launch();
    cudaMemcpy(host.data(), p.y, bytes, cudaMemcpyDeviceToHost);
    if (w == 0) first = host;
    if (host != first || cudaGetLastError() != cudaSuccess) wrong[w] = "  WRONG";
  }
  printf("%d x %d: us, quartiles\n", p.rows, p.packs * 8);
  time_in_turns(ways, 41, wrong);
}

int main() {
  setvbuf(stdout, NULL, _IOLBF, 0);
  for (int cols : {4096, 8192, 3584}) {
    for (int rows : {1, 256, 2048, 8192}) {
      p = {};
      p.rows = rows, p.packs = cols / 8, p.vocab = 128256;
      std::vector<int64_t> idx(rows);
      for (int64_t &i : idx) i = ((int64_t)rand() * 32768 + rand()) % p.vocab;
      std::vector<uint32_t> table((size_t)p.vocab * cols / 2);
      unsigned seed = 1;
      for (uint32_t &t : table) t = seed = seed * 1664525 + 1013904223;
      void *of[4];
      cudaMalloc(of, rows * 8), cudaMalloc(of + 1, table.size() * 4), cudaMalloc(of + 2, (size_t)rows * cols * 2);
      cudaMalloc(of + 3, 4);
      cudaMemcpy(of[0], idx.data(), rows * 8, cudaMemcpyHostToDevice);
      cudaMemcpy(of[1], table.data(), table.size() * 4, cudaMemcpyHostToDevice);
      p.idx = (const int64_t *)of[0], p.table = (const uint4 *)of[1], p.y = (uint4 *)of[2], p.flag = (int32_t *)of[3];
      in_turns({library_way(), gather_way<256, 2, 1, true>(), gather_way<256, 2, 1, false>(),
                gather_way<256, 1, 1, true>(), gather_way<128, 4, 1, true>(), gather_way<128, 2, 1, true>(),
                gather_way<128, 1, 2, true>(), gather_way<128, 1, 4, true>(), gather_way<128, 2, 2, true>(),
                gather_way<256, 1, 2, true>(), gather_way<256, 2, 2, true>(), gather_way<256, 1, 4, true>(),
                gather_way<256, 1, 4, false>(), gather_way<512, 1, 1, true>(), gather_way<512, 1, 2, true>(),
                gather_way<512, 1, 4, true, 2>(), gather_way<512, 2, 1, true>(), gather_way<64, 2, 4, true, 16>(),
                gather_way<64, 4, 4, true, 10>()});
      for (void *m : of) cudaFree(m);
    }
  }
}
