/* dx and dphi of 16-bit x by the tensor cores, where a block reads its channels of all tokens once. f32 operands are a token's
 * rstd * dmix, and phi unless it is bf16. Each is a sum of three bf16, which have all of its bits. For an x of f16 two have all
 * bits. A tile has MHC_TILE tokens, of which a warp makes dx of 16 tokens and 32 channels, and adds half of them to dphi of 16
 * channels. */
#ifndef TIGON_CUDA_KERNEL_MHC_BACK_CUH
#define TIGON_CUDA_KERNEL_MHC_BACK_CUH

#include "cuda/kernel/cluster.cuh"
#include "cuda/kernel/mma.cuh"
#include "cuda/mhc.h"

enum {
  MHC_EIGHTS = MHC_COLUMNS / 8,            /* eights of coefficients */
  MHC_BLOCKS = MHC_PARTS * MHC_EIGHTS,     /* blocks of a token's parts, 8 each */
  MHC_PART_PIECES = MHC_PART_WORDS / 8,    /* pieces of 16 bytes */
  MHC_PART_PITCH = MHC_PART_WORDS * 2 + 16 /* bytes in shared memory, so that 8 rows are in different banks */
};

/* The parts of v, whose sum it is. */
__device__ static inline void mhc_split(float v, bf16 (&part)[MHC_PARTS]) {
  const bool finite = fabsf(v) <= 3.4028235e38f;
  const float first = finite ? __uint_as_float(__float_as_uint(v) & 0xffff0000u) : v, rest = finite ? v - first : 0;
  part[0] = from_f32<bf16>(first);
  part[1] = from_f32<bf16>(rest);
  part[2] = from_f32<bf16>(rest - to_f32(part[1]));
}

template <class T> struct mhc_is_bf16 { static constexpr bool value = false; };
template <> struct mhc_is_bf16<bf16> { static constexpr bool value = true; };

struct mhc_back_stage {
  uint4 x[MHC_TILE][MHC_PANEL / 8], dy[MHC_TILE][MHC_PANEL / 8];
  char parts[MHC_TILE][MHC_PART_PITCH];
  float weights[MHC_TILE][MHC_WEIGHTS];
};
static_assert(sizeof(mhc_back_stage) == MHC_BACK_STAGE_BYTES, "what the launcher asks for");
static_assert(MHC_BACK_BYTES >= MHC_PANEL * MHC_COLUMNS * (int)sizeof(double), "the sums of dphi");
extern __shared__ __align__(16) char mhc_back_shared[]; /* MHC_BACK_STAGES of them; then sums of dphi */

template <class T, int PHI> struct mhc_back_work {
  const tigon_mhc_coeffs_problem &p;
  const mhc_few_work &work;
  const int n, coeffs, warp, lane, stream;
  const int64_t panel; /* its first channel in the stream */

  __device__ mhc_back_work(const tigon_mhc_coeffs_problem &problem, const mhc_few_work &w)
      : p(problem), work(w), n((int)problem.streams), coeffs((int)tigon_mhc_coeffs(problem.streams)),
        warp((int)threadIdx.x / WARP), lane((int)threadIdx.x % WARP), stream((int)(blockIdx.x / w.panels)),
        panel((int64_t)(blockIdx.x % w.panels) * MHC_PANEL) {}

  __device__ static mhc_back_stage &stage_of(int64_t tile) {
    return ((mhc_back_stage *)mhc_back_shared)[tile % MHC_BACK_STAGES];
  }
  __device__ static uint4 &piece_of(uint4 (&row)[MHC_PANEL / 8], int token, int piece) {
    return row[piece ^ (token & 7)];
  }

  __device__ void fetch(int64_t tile) const {
    mhc_back_stage &s = stage_of(tile);
    const int64_t first = tile * MHC_TILE;
    constexpr int PIECES = MHC_PANEL / 8;
#pragma unroll
    for (int i = 0; i < MHC_TILE * PIECES / MHC_BACK_THREADS; ++i) {
      const int e = (int)threadIdx.x + i * MHC_BACK_THREADS, row = e / PIECES, piece = e % PIECES;
      const int64_t t = first + row, c = panel + piece * 8;
      const bool there = t < p.tokens.rows && c < p.cols;
      const int64_t token = there ? t : 0, column = there ? c : 0;
      cp_async(shared_address(&piece_of(s.x[row], row, piece)), row_of<T>(p.space, p.x, token * n + stream) + column,
               there);
      if (p.y.data && p.dx.data)
        cp_async(shared_address(&piece_of(s.dy[row], row, piece)), row_of<T>(p.tokens, p.y, token) + column, there);
    }
    for (int e = (int)threadIdx.x; e < MHC_TILE * (MHC_PART_PIECES + 2); e += MHC_BACK_THREADS) {
      const int row = e / (MHC_PART_PIECES + 2), piece = e % (MHC_PART_PIECES + 2);
      const bool there = first + row < p.tokens.rows, of_parts = piece < MHC_PART_PIECES;
      const int64_t t = there ? first + row : 0;
      const char *from = of_parts ? (const char *)(work.parts + t * MHC_PART_WORDS) + piece * 16
                                  : (const char *)(work.weights + t * MHC_WEIGHTS) + (piece - MHC_PART_PIECES) * 16;
      char *to = of_parts ? s.parts[row] + piece * 16 : (char *)s.weights[row] + (piece - MHC_PART_PIECES) * 16;
      cp_async(shared_address(to), from, there);
    }
  }

  /* Operand B of dx: rows of phi of the warp's 32 channels, of which a lane then has 8 side by side. */
  __device__ void load_phi(unsigned (&phi)[PHI][4][MHC_EIGHTS]) const {
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int m = 0; m < MHC_EIGHTS; ++m) {
        const int64_t c = panel + warp / 4 * 32 + lane / 8 * 8 + 2 * j + lane / 4 % 2;
        bf16 part[2][MHC_PARTS];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int at = m * 8 + lane % 4 * 2 + e;
          const bool there = c < p.cols && at < coeffs;
          mhc_split(there ? load_any(p.phi, (stream * p.cols + c) * coeffs + at, p.phi_dtype) : 0, part[e]);
        }
#pragma unroll
        for (int i = 0; i < PHI; ++i)
          phi[i][j][m] = (unsigned)__bfloat16_as_ushort(part[0][i]) | (unsigned)__bfloat16_as_ushort(part[1][i]) << 16;
      }
  }

  __device__ void find_dx(int64_t tile, const unsigned (&phi)[PHI][4][MHC_EIGHTS]) const {
    mhc_back_stage &s = stage_of(tile);
    const int row = warp % 4 * 16;
    float sum[4][4] = {{0}};
#pragma unroll
    for (int b = 0; b < MHC_BLOCKS; b += 2) {
      unsigned a[4];
      ldmatrix(a, shared_address(s.parts[row + lane % 16] + (b + lane / 16) * 16));
#pragma unroll
      for (int i = 0; i < PHI; ++i) {
        /* Products of two parts below 2^-22 of the first are left out. */
        const bool first = b / MHC_EIGHTS + i < MHC_PARTS,
                   second = b + 1 < MHC_BLOCKS && (b + 1) / MHC_EIGHTS + i < MHC_PARTS;
        if (!first && !second) continue;
#pragma unroll
        for (int j = 0; j < 4; ++j)
          mma<bf16>(sum[j], a, first ? phi[i][j][b % MHC_EIGHTS] : 0, second ? phi[i][j][(b + 1) % MHC_EIGHTS] : 0);
      }
    }
    const int piece = warp / 4 * 4 + lane % 4;
    const int64_t c = panel + piece * 8;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int token = row + lane / 4 + 8 * r;
      const int64_t t = tile * MHC_TILE + token;
      if (t >= p.tokens.rows || c >= p.cols) continue;
      float x[8], dx[8];
      unpack(pack_of<T>(piece_of(s.x[token], token, piece)), x);
      const float less = -s.weights[token][MHC_FEW];
#pragma unroll
      for (int e = 0; e < 8; ++e) dx[e] = fmaf(x[e], less, sum[e / 2][2 * r + e % 2]);
      if (p.y.data) {
        const float weight = s.weights[token][stream];
        unpack(pack_of<T>(piece_of(s.dy[token], token, piece)), x);
#pragma unroll
        for (int e = 0; e < 8; ++e) dx[e] = fmaf(weight, x[e], dx[e]);
      }
      store_pack(row_of<T>(p.space, p.dx, t * n + stream) + c, packed<T, 8>(dx));
    }
  }

  /* Adds half of the tile's tokens to sums of 16 channels: what the first parts make, and the others. */
  __device__ void add_dphi(int64_t tile, float (&main)[MHC_EIGHTS][4], float (&rest)[MHC_EIGHTS][4]) const {
    mhc_back_stage &s = stage_of(tile);
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int first = warp / 8 * 32 + k * 16, row = first + lane / 16 * 8 + lane % 8;
      unsigned a[4], low[4];
      ldmatrix_trans(a, shared_address(&piece_of(s.x[row], row, warp % 8 * 2 + lane / 8 % 2)));
      if constexpr (!mhc_is_bf16<T>::value)
#pragma unroll
        for (int i = 0; i < 4; ++i) split_f16(a[i], low[i]);
#pragma unroll
      for (int u = 0; u < (MHC_BLOCKS + 1) / 2; ++u) {
        unsigned b[4];
        ldmatrix_trans(b, shared_address(s.parts[first + lane % 16] + (2 * u + lane / 16) * 16));
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int block = 2 * u + i;
          if (block >= MHC_BLOCKS) break;
          mma<bf16>(block < MHC_EIGHTS ? main[block] : rest[block % MHC_EIGHTS], a, b[2 * i], b[2 * i + 1]);
          if (!mhc_is_bf16<T>::value && block < 2 * MHC_EIGHTS)
            mma<bf16>(rest[block % MHC_EIGHTS], low, b[2 * i], b[2 * i + 1]);
        }
      }
    }
  }

  /* Two f16 as bf16 of their upper bits, and of what is left. */
  __device__ static void split_f16(unsigned &both, unsigned &low) {
    const float2 v = __half22float2(*(const __half2 *)&both);
    const float value[2] = {v.x, v.y};
    unsigned first[2], rest[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      bf16 part[MHC_PARTS];
      mhc_split(value[e], part);
      first[e] = __bfloat16_as_ushort(part[0]), rest[e] = __bfloat16_as_ushort(part[1]);
    }
    both = first[0] | first[1] << 16, low = rest[0] | rest[1] << 16;
  }

  __device__ void run() const {
    const int64_t tiles = (p.tokens.rows + MHC_TILE - 1) / MHC_TILE;
    unsigned phi[PHI][4][MHC_EIGHTS];
#pragma unroll
    for (int64_t tile = 0; tile < MHC_BACK_STAGES - 1; ++tile) {
      if (tile < tiles) fetch(tile);
      cp_async_commit();
    }
    load_phi(phi);
    double total[MHC_EIGHTS][4] = {{0}};
    float main[MHC_EIGHTS][4] = {{0}}, rest[MHC_EIGHTS][4] = {{0}};
    for (int64_t tile = 0; tile < tiles; ++tile) {
      cp_async_wait_for<MHC_BACK_STAGES - 2>();
      __syncthreads();
      if (tile + MHC_BACK_STAGES - 1 < tiles) fetch(tile + MHC_BACK_STAGES - 1);
      cp_async_commit();
      if (p.dx.data) find_dx(tile, phi);
      if (!p.dphi.data) continue;
      add_dphi(tile, main, rest);
      if (tile % 4 != 3 && tile + 1 < tiles) continue;
#pragma unroll
      for (int m = 0; m < MHC_EIGHTS; ++m)
#pragma unroll
        for (int e = 0; e < 4; ++e) total[m][e] += (double)(main[m][e] + rest[m][e]), main[m][e] = rest[m][e] = 0;
    }
    if (!p.dphi.data) return;
    cp_async_wait_for<0>();
    __syncthreads();
    store_dphi(total);
  }

  /* The second half of the warps hands its sums to the first. */
  __device__ void store_dphi(const double (&total)[MHC_EIGHTS][4]) const {
    double(*sums)[MHC_COLUMNS] = (double(*)[MHC_COLUMNS])mhc_back_shared;
    for (int turn = 1; turn >= 0; --turn) {
      if (warp / 8 == turn)
#pragma unroll
        for (int m = 0; m < MHC_EIGHTS; ++m)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int row = warp % 8 * 16 + lane / 4 + e / 2 * 8, at = m * 8 + lane % 4 * 2 + e % 2;
            const int64_t c = panel + row, to = (stream * p.cols + c) * coeffs + at;
            if (turn == 1) {
              sums[row][at] = total[m][e];
            } else if (c < p.cols && at < coeffs) {
              const float before = p.accumulate ? load_any(p.dphi.data, to, p.dphi.dtype) : 0;
              store_any(p.dphi.data, to, p.dphi.dtype, (float)(total[m][e] + sums[row][at] + (double)before));
            }
          }
      __syncthreads();
    }
  }
};

#endif
