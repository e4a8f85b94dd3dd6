/* mhc_post_res on Ascend: one launch, whose blocks have ranges of tokens. */
#include "ascend/kernel/mhc.h"

#include "ascend/ascend.h"

/* Columns that are on chip: what is left of it beside the weights and their gradients, of rows in their dtype twice, and in f32. */
static int64_t chunk_of(const tigon_queue *queue, const tigon_mhc_post_res_problem *p, bool backward) {
  enum { MOST = 2048, SPARE = 4096 };
  const int64_t size = (int64_t)tigon_dtype_size(p->dtype), in = p->in + (p->f.data != NULL);
  const int64_t rows = in + (backward ? p->out : 0), fixed = SPARE + 4 * p->out * (p->in + 1 + (backward ? 9 * in : 0));
  const int64_t column = 2 * size * (rows + 1) + 4 + (size == 2 ? 4 * (rows + 1) : 0);
  const int64_t most = (ascend_of(queue)->soc->device.onchip_bytes - fixed) / column / 64 * 64;
  const int64_t least = most < MOST ? most : MOST;
  return p->cols < least ? p->cols : least;
}

static tigon_status run(tigon_queue *queue, const tigon_mhc_post_res_problem *p, bool backward) {
  const int64_t cores = ascend_of(queue)->soc->device.cores, tokens = p->in_space.rows / p->in;
  const mhc_post_res_arguments a = {.in_space = ascend_space(&p->in_space),
                                    .out_space = ascend_space(&p->out_space),
                                    .token_space = ascend_space(&p->tokens),
                                    .x = ascend_rows(&p->x),
                                    .dx = ascend_rows(&p->dx),
                                    .o = ascend_rows(&p->o),
                                    .f = ascend_rows(&p->f),
                                    .df = ascend_rows(&p->df),
                                    .h_res = p->h_res.data,
                                    .h_post = p->h_post.data,
                                    .dh_res = p->dh_res.data,
                                    .dh_post = p->dh_post.data,
                                    .tokens = tokens,
                                    .in = p->in,
                                    .out = p->out,
                                    .cols = p->cols,
                                    .chunk = chunk_of(queue, p, backward),
                                    .dtype = p->dtype,
                                    .backward = backward};
  return ascend_launch(queue, "mhc_post_res", mhc_post_res, &a, tokens < cores ? tokens : cores);
}

tigon_status ascend_mhc_post_res_fwd(tigon_queue *queue, const tigon_mhc_post_res_problem *p) {
  return run(queue, p, false);
}

tigon_status ascend_mhc_post_res_bwd(tigon_queue *queue, const tigon_mhc_post_res_problem *p) {
  return run(queue, p, true);
}
