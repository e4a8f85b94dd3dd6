/* Products of 16-bit x with phi of its dtype, by the tensor cores. A block has MHC_TILE tokens, and the blocks of a cluster
 * share their channels. A stage is MHC_STAGE channels of each token of the tile in shared memory, so that memory is read in long
 * pieces. It also has the rows of phi that they meet. A warp has 16 tokens and every other 16 channels. f32 sums over a stage
 * are added up in f64. */
#ifndef TIGON_CUDA_KERNEL_MHC_LOGITS_CUH
#define TIGON_CUDA_KERNEL_MHC_LOGITS_CUH

#include "cuda/kernel/cluster.cuh"
#include "cuda/kernel/mma.cuh"
#include "cuda/mhc.h"

enum {
  MHC_PIECES = MHC_COLUMNS / 8, /* pieces of 16 bytes in a row of phi */
  MHC_SUMS = MHC_COLUMNS + 1,   /* sums of a token: its logits, and the squares */
  MHC_OWN_ROWS = MHC_TILE / (MHC_THREADS / WARP),
};

struct mhc_logits_stage {
  uint4 x[MHC_TILE][MHC_STAGE / 8]; /* piece p of row r is at p ^ (r & 7) */
  uint4 phi[MHC_STAGE][MHC_PIECES]; /* 8 rows side by side are in different banks */
};
static_assert(sizeof(mhc_logits_stage) * MHC_STAGES == MHC_LOGITS_BYTES, "what the launcher asks for");
extern __shared__ __align__(16) char mhc_logits_shared[]; /* MHC_STAGES of them; then sums [MHC_TILE][MHC_SUMS] */

template <class T> struct mhc_logits_work {
  const tigon_mhc_coeffs_problem &p;
  const cluster &cl;
  const int warp, lane, coeffs, each, begin, end; /* channels of a block, and which */
  const int64_t first;                            /* the tile's first token */

  __device__ mhc_logits_work(const tigon_mhc_coeffs_problem &problem, const cluster &of)
      : p(problem), cl(of), warp((int)threadIdx.x / WARP), lane((int)threadIdx.x % WARP),
        coeffs((int)tigon_mhc_coeffs(problem.streams)),
        each(((int)(problem.streams * problem.cols) + 16 * of.size - 1) / (16 * of.size) * 16), begin(of.rank * each),
        end(begin + each < (int)(problem.streams * problem.cols) ? begin + each
                                                                 : (int)(problem.streams * problem.cols)),
        first((int64_t)(blockIdx.x / of.size) * MHC_TILE) {}

  __device__ static mhc_logits_stage &stage_of(int stage) {
    return ((mhc_logits_stage *)mhc_logits_shared)[stage % MHC_STAGES];
  }
  __device__ static double &sum_at(int token, int column) {
    return ((double(*)[MHC_SUMS])mhc_logits_shared)[token][column];
  }

  /* The block's sums of its tokens, into shared memory. */
  __device__ void find_sums() const {
    const int stages = (each + MHC_STAGE - 1) / MHC_STAGE, cols = (int)p.cols;
    /* A lane brings the same channels of the warp's rows; one past the last is the last one again. */
    const T *rows[MHC_OWN_ROWS];
#pragma unroll
    for (int i = 0; i < MHC_OWN_ROWS; ++i) {
      const int64_t t = first + warp + i * (MHC_THREADS / WARP);
      rows[i] = row_of<T>(p.space, p.x, (t < p.tokens.rows ? t : p.tokens.rows - 1) * p.streams);
    }
    int next = begin + lane * 8, stream = next / cols, c = next % cols;
    const auto fetch = [&](int stage) {
      mhc_logits_stage &s = stage_of(stage);
      const bool there = next < end;
      const int64_t at = there ? stream * p.x.pitch[2] + c : 0;
#pragma unroll
      for (int i = 0; i < MHC_OWN_ROWS; ++i) {
        const int row = warp + i * (MHC_THREADS / WARP);
        cp_async(shared_address(&s.x[row][lane ^ (row & 7)]), rows[i] + at, there);
      }
      next += MHC_STAGE;
      for (c += MHC_STAGE; c >= cols; c -= cols) ++stream;
#pragma unroll
      for (int i = 0; i < MHC_STAGE * MHC_PIECES / MHC_THREADS; ++i) {
        const int e = (int)threadIdx.x + i * MHC_THREADS, k = e / MHC_PIECES, piece = e % MHC_PIECES;
        const int channel = begin + stage * MHC_STAGE + k;
        const bool of_phi = channel < end && piece * 8 < coeffs;
        cp_async(shared_address(&s.phi[k][piece]),
                 (const T *)p.phi + (of_phi ? (int64_t)channel * coeffs + piece * 8 : 0), of_phi);
      }
    };
#pragma unroll
    for (int stage = 0; stage < MHC_STAGES; ++stage) {
      if (stage < stages) fetch(stage);
      cp_async_commit();
    }
    double total[MHC_PIECES][4] = {{0}}, squares[2] = {0, 0};
    for (int stage = 0; stage < stages; ++stage) {
      cp_async_wait_for<MHC_STAGES - 1>();
      __syncthreads();
      float sum[MHC_PIECES][4] = {{0}}, square[2] = {0, 0};
      multiply(stage_of(stage), sum, square);
      __syncthreads();
      if (stage + MHC_STAGES < stages) fetch(stage + MHC_STAGES);
      cp_async_commit();
#pragma unroll
      for (int i = 0; i < MHC_PIECES; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) total[i][e] += (double)sum[i][e];
#pragma unroll
      for (int r = 0; r < 2; ++r) squares[r] += (double)square[r];
    }
    for (int turn = 1; turn >= 0; --turn) { /* the stages' place is the sums' */
      if (warp / 4 == turn) add(warp % 4 * 16, total, squares, turn == 0);
      __syncthreads();
    }
  }

  __device__ void multiply(const mhc_logits_stage &s, float (&sum)[MHC_PIECES][4], float (&square)[2]) const {
    const int row = warp % 4 * 16 + lane % 16;
#pragma unroll
    for (int k = 0; k < MHC_STAGE / 32; ++k) {
      const int channel = k * 32 + warp / 4 * 16;
      unsigned a[4], b[4], last[4];
      ldmatrix(a, shared_address(&s.x[row][(channel / 8 + lane / 16) ^ (row & 7)]));
      ldmatrix_trans(b, shared_address(&s.phi[channel + lane % 16][lane / 16]));
      ldmatrix_trans(last, shared_address(&s.phi[channel + lane % 16][2]));
      mma<T>(sum[0], a, b[0], b[1]);
      mma<T>(sum[1], a, b[2], b[3]);
      mma<T>(sum[2], a, last[0], last[1]);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 v = unpacked_two<T>(a[i]);
        square[i % 2] = fmaf(v.x, v.x, fmaf(v.y, v.y, square[i % 2]));
      }
    }
  }

  /* Into rows of the sums, or onto what is there. */
  __device__ void add(int row, const double (&total)[MHC_PIECES][4], double (&squares)[2], bool onto) const {
    const auto put = [&](int r, int column, double v) {
      double &to = sum_at(row + r, column);
      to = onto ? to + v : v;
    };
#pragma unroll
    for (int i = 0; i < MHC_PIECES; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) put(lane / 4 + e / 2 * 8, i * 8 + lane % 4 * 2 + e % 2, total[i][e]);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      squares[r] += __shfl_xor_sync(0xffffffffu, squares[r], 1);
      squares[r] += __shfl_xor_sync(0xffffffffu, squares[r], 2);
      if (lane % 4 == 0) put(lane / 4 + 8 * r, MHC_COLUMNS, squares[r]);
    }
  }

  /* What the blocks of the cluster have of a token's sum. All of them have met. */
  __device__ double sum_of(int token, int column) const {
    double part[MHC_CLUSTER];
#pragma unroll
    for (int rank = 0; rank < MHC_CLUSTER; ++rank)
      part[rank] = rank < cl.size ? *cluster_box(cl, &sum_at(token, column), rank) : 0;
#pragma unroll
    for (int rank = 1; rank < MHC_CLUSTER; ++rank) part[0] += part[rank];
    return part[0];
  }
};

#endif
