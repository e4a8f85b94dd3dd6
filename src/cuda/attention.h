/* What the launchers and the kernels of attention agree on. */
#ifndef TIGON_CUDA_ATTENTION_H
#define TIGON_CUDA_ATTENTION_H

#include "cuda/driver.h"
#include "problem/heads.h"

enum {
  ATTENTION_TILE = 64,  /* queries, keys and columns of the head that are worked on together */
  ATTENTION_PITCH = 68, /* floats of a tile's row in shared memory: rows begin in different banks */
  ATTENTION_TILE_BYTES = ATTENTION_TILE * ATTENTION_PITCH * 4,
  ATTENTION_FMA_THREADS = 256,    /* a block, in f32 */
  ATTENTION_TENSOR_THREADS = 128, /* in 16-bit dtypes */
  ATTENTION_DELTA_THREADS = 256,
  ATTENTION_DELTA_ROWS = 4,     /* rows that lanes have together */
  ATTENTION_MMA_DIM = 128,      /* the widest head of the kernels in attention_mma.cu and attention_bwd_mma.cu */
  ATTENTION_MMA_FEW = 16,       /* queries and keys, at most, with which attention_mma.cu is sooner done than wgmma */
  ATTENTION_MMA_FWD_WARPS = 4,  /* warps with 16 queries each */
  ATTENTION_MMA_BWD_WARPS = 4,  /* warps with 16 keys, or queries, each */
  ATTENTION_MMA_KEYS_COLS = 32, /* queries at a time, for dk and dv */
  ATTENTION_MMA_QUERIES_COLS = 64, /* keys at a time, for dq */
};

/* Those of attention_wgmma.cu, for heads of up to 64 and 128 columns. */
enum {
  ATTENTION_WGMMA_KEYS = 128,       /* keys of a tile */
  ATTENTION_WGMMA_GROUPS_64 = 3,    /* warpgroups, of 64 queries each, besides the one that loads */
  ATTENTION_WGMMA_GROUPS_SHORT = 2, /* the same of a short sequence, which fills its last tile better */
  ATTENTION_WGMMA_GROUPS_128 = 2,
  ATTENTION_WGMMA_SHORT = 2048,  /* tokens of a short sequence, at most */
  ATTENTION_WGMMA_STAGES_64 = 4, /* tiles of keys, and of values, that are there or on their way */
  ATTENTION_WGMMA_STAGES_128 = 2,
};
#define ATTENTION_WGMMA_STAGES(dim) ((dim) == 64 ? ATTENTION_WGMMA_STAGES_64 : ATTENTION_WGMMA_STAGES_128)
#define ATTENTION_WGMMA_ROWS(groups) (64 * (groups))
#define ATTENTION_WGMMA_THREADS(groups) (128 * (1 + (groups)))
/* Shared memory: queries of two tiles, keys and values, barriers and tasks, and what aligns them. */
#define ATTENTION_WGMMA_SHARED(dim, groups) \
  (2 * (ATTENTION_WGMMA_ROWS(groups) + ATTENTION_WGMMA_STAGES(dim) * ATTENTION_WGMMA_KEYS) * (dim)*2 + 512 + 1024)

/* Boxes of 64 columns: of a block's queries, of a tile's keys and values. */
typedef struct attention_maps {
  cu_tensor_map q, k, v;
} attention_maps;

/* Those of attention_few_wgmma.cu. */
enum {
  ATTENTION_FEW_ROWS = 64,   /* queries, at most */
  ATTENTION_FEW_KEYS = 1024, /* keys, at least, of one tile of queries */
  ATTENTION_FEW_MANY = 8192, /* and of several */
  ATTENTION_FEW_BLOCKS = 4,  /* parts of the keys: whatever the batch, so that it does not decide the bits */
  ATTENTION_FEW_GROUPS = 2,
  ATTENTION_FEW_STAGES = 3, /* tiles of a warpgroup that are there or on their way */
  ATTENTION_FEW_THREADS = (128 + 32) * ATTENTION_FEW_GROUPS,
};
/* Heads of a group, whose queries are rows of one tile. */
#define ATTENTION_FEW_HEADS(tokens, group) \
  ((tokens) * (group) <= ATTENTION_FEW_ROWS ? (group) : ATTENTION_FEW_ROWS / (tokens))
#define ATTENTION_FEW_SHARED(dim) \
  ((ATTENTION_FEW_ROWS + ATTENTION_FEW_GROUPS * ATTENTION_FEW_STAGES * ATTENTION_WGMMA_KEYS) * (dim)*2 + 256 + 1024)

/* The same of attention_bwd_wgmma.cu. A block's rows are keys, for dk and dv, or queries, for dq; steps are of columns of the other side. */
enum {
  ATTENTION_WGMMA_BWD_GROUPS = 2,
  ATTENTION_WGMMA_BWD_ROWS = 64 * ATTENTION_WGMMA_BWD_GROUPS,
  ATTENTION_WGMMA_BWD_THREADS = 128 * (1 + ATTENTION_WGMMA_BWD_GROUPS),
  ATTENTION_SHARED_STEPS = 16, /* steps of a tile that two blocks share, at least */
};
#define ATTENTION_WGMMA_BWD_COLS(dim, of_keys) ((of_keys) && (dim) == 128 ? 64 : 128)
#define ATTENTION_WGMMA_BWD_STAGES(dim, of_keys) ((dim) == 128 && !(of_keys) ? 2 : 3)
/* Shared memory: two matrices of rows and two of each stage's columns, a stage's lse and delta, barriers, what aligns them, and the other
 * part's sums. */
#define ATTENTION_WGMMA_BWD_SHARED(dim, of_keys)                                                        \
  (2 *                                                                                                  \
       (ATTENTION_WGMMA_BWD_ROWS +                                                                      \
        ATTENTION_WGMMA_BWD_STAGES(dim, of_keys) * ATTENTION_WGMMA_BWD_COLS(dim, of_keys)) *            \
       (dim)*2 +                                                                                        \
   ATTENTION_WGMMA_BWD_STAGES(dim, of_keys) * ATTENTION_WGMMA_BWD_COLS(dim, of_keys) * 8 + 256 + 1024 + \
   ((of_keys) ? ATTENTION_WGMMA_BWD_ROWS * (dim)*4 : 0))

/* Boxes of a block's rows and of a step's columns: k and v, q and do for dk and dv; q and do, k and v for dq. */
typedef struct attention_bwd_maps {
  cu_tensor_map a_rows, b_rows, a_cols, b_cols;
} attention_bwd_maps;

/* In which order blocks have the tiles of rows of all heads. */
typedef struct attention_turns {
  int tiles;   /* tiles of a head */
  int heads;   /* heads of all batches */
  int section; /* heads that are gone over together */
  int parts;   /* blocks, in a cluster, that share a tile */
  int paired;  /* a block has two tiles of a head in turn, of the ends */
  int rounds;  /* tiles that a block has, at most */
} attention_turns;

/* Those of attention_once_wgmma.cu. Blocks take tiles of keys as they come, those first that have most to do, of a section's heads together. */
enum {
  ATTENTION_ONCE_SECTION = 16,  /* heads of keys */
  ATTENTION_ONCE_PART = 8192,   /* numbers of dq in a step of a head */
  ATTENTION_ONCE_THREADS = 256, /* a block, which turns a step's sums into dq */
};
#define ATTENTION_ONCE_COLS(dim) ((dim) == 128 ? 64 : 128)
#define ATTENTION_ONCE_STAGES(dim) ((dim) == 128 ? 3 : 2)
#define ATTENTION_ONCE_SLOTS(dim) ((dim) == 128 ? 1 : 2) /* steps whose parts of dq wait */
/* Shared memory: keys and values, the stages' queries, do and statistics, slopes of two steps, parts of dq, barriers. */
#define ATTENTION_ONCE_SHARED(dim)                                                                                     \
  (2 * (ATTENTION_WGMMA_BWD_ROWS + ATTENTION_ONCE_STAGES(dim) * ATTENTION_ONCE_COLS(dim)) * (dim)*2 +                  \
   ATTENTION_ONCE_STAGES(dim) * ATTENTION_ONCE_COLS(dim) * 8 +                                                         \
   2 * ATTENTION_WGMMA_BWD_ROWS * ATTENTION_ONCE_COLS(dim) * 2 + ATTENTION_ONCE_SLOTS(dim) * ATTENTION_ONCE_PART * 4 + \
   256)
typedef struct attention_once {
  float *sums; /* a step's part of dq of a head after the other */
  int *turns;  /* tiles that have been taken; from [1] on, tiles that each of those parts has been added from */
  int tiles, heads, section; /* tiles of a head of keys, heads of all batches, and those gone over together */
} attention_once;

/* Tiles in a block's shared memory, if `kept` column tiles of the head stay there or in registers. These are the tiles of the
 * row side, one of the other side, and a place for each matrix of weights. */
static inline int attention_fwd_tiles(int kept, bool f32) { return kept + 1 + f32; }
static inline int attention_bwd_tiles(int kept, bool f32) { return 2 * kept + 2 + 2 * f32; }

/* The same of the kernels in mma: rows of both sides as the caller's elements. */
static inline int attention_mma_fwd_bytes(int dim) {
  return (ATTENTION_MMA_FWD_WARPS * 16 + 4 * ATTENTION_TILE) * dim * 2;
}
static inline int attention_mma_bwd_bytes(int dim, int cols) {
  const int stats = 2 * ATTENTION_TILE * 2 * (int)sizeof(float); /* statistics of queries, at most */
  return (2 * ATTENTION_MMA_BWD_WARPS * 16 + 4 * cols) * dim * 2 + stats;
}

/* How delta's kernel goes over the rows of o and do: in the order of their memory, by 16 bytes where `lanes` is not 0. */
typedef struct attention_delta_walk {
  int *turns; /* cleared besides */
  int64_t count;
  int lanes; /* a row has so many; 0: a warp, by elements */
  bool heads_first;
} attention_delta_walk;

typedef struct attention_walk {
  bool wide; /* four elements of a head are read (mma: eight), and two written, at a time */
  int64_t query_places,
      key_places; /* tiles of a head, and of a call in parts places of tiles (core/attention_part.h) */
} attention_walk;

#endif
