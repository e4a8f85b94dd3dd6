/* Study: the smallest program in which compute-sanitizer's racecheck sees a hazard that is none: a team passes one named
 * barrier more than the other before the barriers of the whole block. With EVEN both pass as many, and it sees none. Build
 * and run, and again with -DEVEN=1:
 *   nvcc -arch=sm_90 docs/lab/rms_norm/cuda_racecheck.cu -o race && compute-sanitizer --tool racecheck ./race */
#include <cstdio>

#ifndef EVEN
#define EVEN 0
#endif

__global__ void turns(float *out) {
  __shared__ float sums[64];
  const int rank = threadIdx.x % 64, team = threadIdx.x / 64;
  if (EVEN || team == 0) asm volatile("bar.sync %0, 64;" ::"r"(team + 1) : "memory");
  __syncthreads();
  if (team == 0) sums[rank] = rank;
  __syncthreads();
  if (team == 1) out[rank] = sums[rank];
}

int main() {
  float *out;
  cudaMalloc(&out, 64 * sizeof *out);
  turns<<<1, 128>>>(out);
  return puts(cudaGetErrorString(cudaDeviceSynchronize())) < 0;
}
