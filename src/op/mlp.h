/* The inside of mlp: what its front lays out, and what works it off. */
#ifndef TIGON_OP_MLP_INSIDE_H
#define TIGON_OP_MLP_INSIDE_H

#include <tigon/op/mlp.h>

#include "op/front.h"

/* The gradient of a weight, or of a bias. */
typedef struct mlp_gradient {
  bool wanted;
  void *out; /* not NULL where it is wanted, but in a query */
  tigon_dtype dtype;
  int64_t pitch;
  bool vector;
  float *sums; /* f32 sums of a 16-bit gradient, contiguous; NULL: straight into `out` */
  bool begun;  /* a tile is in it */
} mlp_gradient;

/* A weight with its bias. */
typedef struct mlp_projection {
  const void *w;
  int64_t w_pitch;
  const void *b; /* NULL: none */
  tigon_dtype b_dtype;
  mlp_gradient dw, db;
} mlp_projection;

/* Memory of a tile of up to `rows` rows. */
typedef struct mlp_space {
  int64_t rows;
  char *pre; /* [rows, 2, columns]: a and u, later da and du */
  char *c;   /* [rows, columns]: c, later dc; then f32 sums of dx [rows, width]. Forward has c in the place of a */
} mlp_space;

typedef struct mlp {
  tigon_context *context;
  tigon_mlp_act act;
  tigon_map_numbers numbers;
  tigon_dtype dtype;
  int64_t rows, width, inner; /* width: H, inner: I */
  bool packed;                /* gate and up are one matrix, and so are their gradients */
  mlp_projection gate, up, down;
  const char *x, *dy;
  char *y, *dx;
  bool wants_dx;
  int64_t x_pitch, dy_pitch, y_pitch, dx_pitch;
  char *cache; /* [cached, 2, inner] */
  int64_t cached;
  bool accumulate;
  /* The schedule. */
  mlp_space whole; /* tiles of all columns */
  int64_t panel;   /* columns whose weights' gradients are summed at a time; 0: all, along with dx */
  mlp_space part;  /* tiles of a panel */
  size_t sums;     /* bytes of gradients' f32 sums */
} mlp;

/* Is dx a sum of two products that is not f32 itself? */
static inline bool mlp_sums_dx(const mlp *m) { return !m->packed && m->dtype != TIGON_F32; }

tigon_status tigon_mlp_run_fwd(mlp *m);
tigon_status tigon_mlp_run_bwd(mlp *m);

#endif
