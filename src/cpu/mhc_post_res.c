/* mhc_post_res: f is one more stream, whose weights are h_post. A task has a range of tokens, each of which is worked on in blocks
 * of columns that stay in the cache for all sums. */
#include "cpu/mhc.h"

enum { MOST = TIGON_MHC_STREAMS + 1 };

typedef struct job {
  const tigon_mhc_post_res_problem *p;
  int64_t tokens, tasks;
  bool backward, stream;
} job;

/* The rows of a token; f is the last of those in. Absent outputs are NULL. */
typedef struct token {
  const char *in[MOST], *of_o[MOST];
  char *din[MOST], *o[MOST];
  float w[TIGON_MHC_STREAMS][MOST]; /* [out, in] */
  double dw[TIGON_MHC_STREAMS][MOST];
} token;

static void find_rows(const tigon_mhc_post_res_problem *p, int64_t t, token *of) {
  const size_t size = tigon_dtype_size(p->dtype);
  const float *h_res = p->h_res.data, *h_post = p->h_post.data;
  for (int64_t i = 0; i < p->in; ++i) {
    of->in[i] = tigon_row(&p->in_space, &p->x, size, t * p->in + i);
    of->din[i] = tigon_row(&p->in_space, &p->dx, size, t * p->in + i);
  }
  of->in[p->in] = tigon_row(&p->tokens, &p->f, size, t);
  of->din[p->in] = tigon_row(&p->tokens, &p->df, size, t);
  for (int64_t j = 0; j < p->out; ++j) {
    of->of_o[j] = of->o[j] = tigon_row(&p->out_space, &p->o, size, t * p->out + j);
    for (int64_t i = 0; i < p->in; ++i) of->w[j][i] = h_res[(t * p->out + j) * p->in + i], of->dw[j][i] = 0;
    of->w[j][p->in] = h_post ? h_post[t * p->out + j] : 0, of->dw[j][p->in] = 0;
  }
}

TIGON_INLINE void rows_task(tigon_dtype dtype, const job *j, int64_t index) {
  const tigon_mhc_post_res_problem *p = j->p;
  const int in = (int)p->in + (p->f.data != NULL), out = (int)p->out;
  int64_t begin, end;
  tigon_range(j->tokens, j->tasks, index, &begin, &end);
  for (int64_t t = begin; t < end; ++t) {
    token of;
    find_rows(p, t, &of);
    for (int64_t c = 0; c < p->cols; c += MHC_BLOCK) {
      const int64_t stop = p->cols - c < MHC_BLOCK ? p->cols : c + MHC_BLOCK;
      for (int k = 0; !j->backward && k < out; ++k)
        mhc_mix(dtype, in, of.in, of.w[k], 1, of.o[k], c, stop, j->stream && v2_aligned(of.o[k]));
      for (int i = 0; j->backward && i < in; ++i) {
        if (of.din[i])
          mhc_mix(dtype, out, of.of_o, &of.w[0][i], MOST, of.din[i], c, stop, j->stream && v2_aligned(of.din[i]));
        const bool wanted = i < p->in ? p->dh_res.data != NULL : p->dh_post.data != NULL;
        for (int k = 0; wanted && k < out; ++k) of.dw[k][i] += (double)mhc_dot(dtype, of.of_o[k], of.in[i], c, stop);
      }
    }
    float *dh_res = p->dh_res.data, *dh_post = p->dh_post.data;
    for (int k = 0; dh_res && k < out; ++k)
      for (int i = 0; i < p->in; ++i) dh_res[(t * p->out + k) * p->in + i] = (float)of.dw[k][i];
    for (int k = 0; dh_post && k < out; ++k) dh_post[t * p->out + k] = (float)of.dw[k][p->in];
  }
  if (j->stream) vf_fence();
}

static void task(const void *argument, int64_t index) {
  const job *j = argument;
  TIGON_FOR_DTYPE(j->p->dtype, rows_task, j, index);
}

static tigon_status run(tigon_queue *queue, const tigon_mhc_post_res_problem *p, bool backward) {
  const int64_t tokens = p->in_space.rows / p->in, rows = (backward ? 2 * p->in + 2 : p->in + 1) + p->out;
  const int64_t bytes = rows * p->cols * v_size(p->dtype);
  const job j = {p, tokens, tigon_cpu_row_tasks(tokens, bytes), backward, tigon_cpu_streams(tokens * bytes)};
  tigon_cpu_parallel(queue, j.tasks, task, &j);
  return TIGON_OK;
}

tigon_status TIGON_CPU(mhc_post_res_fwd)(tigon_queue *queue, const tigon_mhc_post_res_problem *p) {
  return run(queue, p, false);
}

tigon_status TIGON_CPU(mhc_post_res_bwd)(tigon_queue *queue, const tigon_mhc_post_res_problem *p) {
  return run(queue, p, true);
}
