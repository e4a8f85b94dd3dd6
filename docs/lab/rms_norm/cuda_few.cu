/* Study: few rows backward in one launch, cut in several ways, beside two launches; bf16, a cold call each, in turns. Build and run:
 *   nvcc -std=c++17 -O3 -gencode arch=compute_90,code=sm_90 -Isrc -Iinclude docs/lab/rms_norm/cuda_few.cu -o cuda_few && ./cuda_few */
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cuda_time.cuh"

#include "cuda/kernel/norm_bwd_few.cuh"
#include "cuda/kernel/norm_bwd.cuh"

#define ALL(name, kind)                                                                                \
  __global__ void __launch_bounds__(NORM_FEW_THREADS) name##_few(const __grid_constant__ norm_few p) { \
    norm_bwd_few<bf16, kind>(p);                                                                       \
  }                                                                                                    \
  __global__ void __launch_bounds__(NORM_BWD_THREADS)                                                  \
      name##_held(const __grid_constant__ tigon_norm_bwd_problem p, const norm_walk walk) {            \
    norm_bwd_held<bf16, kind, true>(p, walk);                                                          \
  }
ALL(rms, NORM_RMS)
ALL(add, NORM_ADD_RMS)
ALL(layer, NORM_LAYER)

__global__ void __launch_bounds__(COLUMN_SUM_COLUMNS *COLUMN_SUM_PARTS) sums(const __grid_constant__ column_sums all) {
  column_sum_await();
  const column_sum_one &one = all.of[blockIdx.y];
  column_sum_block(one.slabs, all.count, all.step, (int64_t)blockIdx.x * COLUMN_SUM_COLUMNS, all.cols, one.to, 0,
                   one.dtype, all.accumulate);
}

typedef void (*few_kernel)(norm_few);
struct op {
  const char *name;
  norm_kind kind;
  few_kernel few;
  void (*held)(tigon_norm_bwd_problem, norm_walk);
};
static const op ops[] = {{"rms_norm", NORM_RMS, rms_few, rms_held},
                         {"fused_add", NORM_ADD_RMS, add_few, add_held},
                         {"layer_norm", NORM_LAYER, layer_few, layer_held}};

struct variant {
  int cluster, clusters, each; /* cluster 0: two launches */
  std::vector<float> us;
  double wrong;
};
struct data {
  int rows, cols;
  uint16_t *dy, *x, *ds, *dx, *w, *dw, *db; /* dw, db: behind dx */
  float *rstd, *mean, *slabs;
  unsigned *ticket;
};

static void launch(const op &o, const data &d, const variant &v, cudaStream_t stream) {
  cudaLaunchAttribute attribute;
  cudaLaunchConfig_t config = {};
  config.attrs = &attribute, config.stream = stream;
  const int values = o.kind == NORM_LAYER ? 2 : 1;
  if (v.cluster > 0) {
    norm_few p = {};
    p.dy = d.dy, p.x = d.x, p.w = d.w, p.rstd = d.rstd, p.mean = d.mean, p.dx = d.dx, p.dw = d.dw;
    p.dy_pitch = p.x_pitch = p.dx_pitch = p.ds_pitch = p.cols = d.cols, p.rows = d.rows;
    p.ds = o.kind == NORM_ADD_RMS ? d.ds : NULL, p.db = values > 1 ? d.db : NULL, p.share = 1 / (float)d.cols;
    p.dw_dtype = p.db_dtype = TIGON_BF16, p.clusters = v.clusters, p.each = v.each, p.slabs = d.slabs;
    p.ticket = d.ticket, p.team_bits = 5;
    while (1 << p.cluster_bits < v.cluster) ++p.cluster_bits;
    while (d.cols / 8 > 1 << (p.team_bits + p.cluster_bits)) ++p.team_bits;
    config.dynamicSmemBytes = (v.each * (p.ds ? 3 : 2) + values * 2) * NORM_FEW_THREADS * 16 +
                              v.each * values * (NORM_FEW_THREADS / 32 * v.cluster) * 4;
    cudaFuncSetAttribute(o.few, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10);
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {(unsigned)v.cluster, 1, 1};
    config.numAttrs = v.cluster > 1;
    config.gridDim = v.cluster * v.clusters, config.blockDim = NORM_FEW_THREADS;
    cudaLaunchKernelEx(&config, o.few, p);
    return;
  }
  tigon_norm_bwd_problem p = {};
  p.space.rows = p.space.inner = d.rows, p.space.middle = 1, p.cols = d.cols;
  p.dtype = p.w_dtype = p.dw_dtype = p.db_dtype = TIGON_BF16;
  p.dy.data = d.dy, p.x.data = d.x, p.ds.data = o.kind == NORM_ADD_RMS ? d.ds : NULL, p.dx.data = d.dx;
  p.dy.pitch[2] = p.x.pitch[2] = p.ds.pitch[2] = p.dx.pitch[2] = d.cols;
  p.w = d.w, p.rstd = d.rstd, p.mean = d.mean, p.dw = d.dw, p.db = values > 1 ? d.db : NULL, p.slabs = d.slabs;
  norm_walk walk = {};
  walk.ranges = std::min(d.rows, 132), walk.team = 32;
  while (walk.team * NORM_BWD_PACKS * 8 < d.cols) walk.team *= 2;
  const int bytes = NORM_BWD_STAGES * (p.ds.data ? 3 : 2) * NORM_BWD_PACKS * NORM_BWD_THREADS * 16;
  cudaFuncSetAttribute(o.held, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  o.held<<<(unsigned)walk.ranges, NORM_BWD_THREADS, bytes, stream>>>(p, walk);
  column_sums all = {
      {{d.slabs, d.dw, TIGON_BF16}, {d.slabs + d.cols, d.db, TIGON_BF16}}, walk.ranges, values * d.cols, d.cols, false};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization,
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.numAttrs = 1,
  config.gridDim = {(unsigned)(d.cols + COLUMN_SUM_COLUMNS - 1) / COLUMN_SUM_COLUMNS, (unsigned)values};
  config.blockDim = COLUMN_SUM_COLUMNS * COLUMN_SUM_PARTS;
  cudaLaunchKernelEx(&config, sums, all);
}

/* The most that `of` of bf16 is away from `right`, as a share of the largest of those. */
static double wrong_by(const std::vector<uint16_t> &of, const std::vector<uint16_t> &right, size_t begin, size_t end) {
  auto wide = [](uint16_t v) {
    const uint32_t bits = (uint32_t)v << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
  };
  double most = 0, largest = 0;
  for (size_t i = begin; i < end; ++i) {
    const double error = fabs(wide(of[i]) - wide(right[i]));
    most = error <= most ? most : error; /* NaN counts */
    largest = std::max(largest, fabs((double)wide(right[i])));
  }
  return most / largest;
}

static void study(const op &o, int rows, int cols, std::vector<variant> variants) {
  const size_t n = (size_t)rows * cols, outputs = n + 2 * cols;
  std::vector<uint16_t> host(n);
  std::vector<float> stats(rows);
  for (float &v : stats) v = 1 + rand() % 64 / 64.f;
  data d = {rows, cols};
  for (uint16_t **m : {&d.dy, &d.x, &d.ds}) {
    for (uint16_t &h : host) h = 0x3f00 + (rand() & 0x80ff);
    cudaMalloc(m, n * 2), cudaMemcpy(*m, host.data(), n * 2, cudaMemcpyHostToDevice);
  }
  cudaMalloc(&d.w, cols * 2), cudaMemcpy(d.w, host.data(), cols * 2, cudaMemcpyHostToDevice);
  cudaMalloc(&d.rstd, rows * 4), cudaMemcpy(d.rstd, stats.data(), rows * 4, cudaMemcpyHostToDevice);
  cudaMalloc(&d.mean, rows * 4), cudaMemcpy(d.mean, stats.data(), rows * 4, cudaMemcpyHostToDevice);
  cudaMalloc(&d.dx, outputs * 2), d.dw = d.dx + n, d.db = d.dw + cols;
  cudaMalloc(&d.slabs, 132 * 2 * 4 * (size_t)cols), cudaMalloc(&d.ticket, 4), cudaMemset(d.ticket, 0, 4);
  variants.insert(variants.begin(), variant{});
  std::vector<uint16_t> right(outputs), got(outputs), again(outputs);
  const size_t used = o.kind == NORM_LAYER ? outputs : n + cols;
  auto run = [&](const variant &v, std::vector<uint16_t> &to) {
    cudaMemset(d.dx, 0xff, outputs * 2);
    launch(o, d, v, 0);
    cudaMemcpy(to.data(), d.dx, outputs * 2, cudaMemcpyDeviceToHost);
  };
  run(variants[0], right);
  for (variant &v : variants) {
    run(v, got), run(v, again);
    v.wrong = std::max(wrong_by(got, right, 0, n), wrong_by(got, right, n, used));
    if (memcmp(got.data(), again.data(), used * 2)) v.wrong = NAN;
  }
  enum { SAMPLES = 31 };
  for (int i = 0; i < SAMPLES; ++i)
    for (variant &v : variants) v.us.push_back((float)cold_sample([&] { launch(o, d, v, 0); }));
  printf("%s %d x %d:", o.name, rows, cols);
  for (variant &v : variants) {
    std::sort(v.us.begin(), v.us.end());
    if (v.cluster) printf(" | %d blocks, %d clusters, %d rows:", v.cluster, v.clusters, v.each);
    printf(" %.2f (%.2f-%.2f)%s", v.us[SAMPLES / 2], v.us[SAMPLES / 5], v.us[SAMPLES * 4 / 5],
           v.wrong < 0.01 ? "" : " WRONG");
    if (!(v.wrong < 0.01)) printf(" by %g", v.wrong);
  }
  puts(cudaDeviceSynchronize() == cudaSuccess ? "" : "  FAILED");
  for (void *m : {(void *)d.dy, (void *)d.x, (void *)d.ds, (void *)d.dx, (void *)d.w, (void *)d.rstd, (void *)d.mean,
                  (void *)d.slabs, (void *)d.ticket})
    cudaFree(m);
}

int main() {
  setvbuf(stdout, NULL, _IOLBF, 0);
  for (const op &o : ops)
    for (int cols : {512, 1024, 2048, 4096, 8192})
      for (int rows : {1, 4, 16, 32, 64, 128, 256, 512}) {
        std::vector<variant> variants;
        for (int cluster = 1; cluster <= std::min(8, cols / 256); cluster *= 2) { /* a team is a warp at least */
          const int teams = NORM_FEW_THREADS * 8 * cluster / cols;
          if (teams == 0 || (rows > 4 && cluster < std::min(8, cols / 256))) continue;
          for (int clusters : {1, 2, 4, 8, 15}) {
            const int each = (rows + clusters * teams - 1) / (clusters * teams);
            if (each <= 4 && (clusters == 1 || (clusters - 1) * teams < rows))
              variants.push_back({cluster, clusters, each});
          }
        }
        study(o, rows, cols, variants);
      }
}
