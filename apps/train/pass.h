/* A pass takes one micro-batch through the model, forward and backward: its activations, its views and its scratch.
 *
 * N = batch x seq tokens; H hidden, W = (heads + 2 kv_heads) x head_dim, Q = heads x head_dim, I intermediate, V vocab.
 * The fused pass keeps 4 H + W + Q + 2 I elements a token and layer, and recomputes the MLP's product. The unfused pass is the baseline of --compare: it keeps what
 * separate operators keep, 4 H + W + Q + 4 I elements a token and layer, and the full logits. */
#ifndef TRAIN_PASS_H
#define TRAIN_PASS_H

#include "model.h"
#include "ops.h"

typedef struct train_layer {
  tigon_tensor s_attention, rstd_attention; /* [N, H] the residual stream before attention; [N] f32 */
  tigon_tensor qkv;                         /* [B, T, W], q and k already turned */
  tigon_tensor o, lse;                      /* [B, T, heads, head_dim]; [B, heads, T] f32 */
  tigon_tensor s_mlp, rstd_mlp;             /* [N, H] the residual stream before the MLP; [N] f32 */
  tigon_tensor gate_up;                     /* [N, 2 I]; backward turns it into its gradient */
  tigon_tensor y_attention, y_mlp;          /* [N, H] the norms' outputs */
  tigon_tensor silu, c;                     /* unfused: [N, I] silu(gate); silu(gate) * up */
} train_layer;

typedef struct train_pass {
  train_model *model;
  bool fused;
  int64_t batch, seq;
  int threads; /* threads of the unfused loops; 0: OpenMP's default */
  train_ops ops;
  train_block arena;
  train_layer *layers;
  tigon_tensor tokens, labels; /* [N] i32 */
  tigon_tensor loss;           /* [1] f32, the sum over the tokens */
  tigon_tensor s_final, rstd_final;
  tigon_tensor x;         /* [N, H] forward: a branch's output; backward: the gradient of the residual stream */
  tigon_tensor y;         /* [N, H] forward: the last norm's output; backward: the gradient of any norm's */
  tigon_tensor c;         /* fused: [N, I] the MLP's product, then its gradient */
  tigon_tensor d_o, dqkv; /* as o and qkv; in the memory of c */
  tigon_tensor d_norm, d_c, d_silu, d_gate_up;    /* unfused: [N, H], [N, I], [N, I], [N, 2 I] */
  tigon_tensor logits, log_probability, d_logits; /* unfused: [N, V]; the second f32; in the memory of d_c and on */
  tigon_tensor norm_slabs;                        /* unfused: [TRAIN_SLABS, H] f32 partial sums of dw */
} train_pass;

enum { TRAIN_SLABS = 16 };

bool train_pass_create(train_memory *memory, train_model *model, int64_t batch, int64_t seq, bool fused, int threads,
                       train_pass *pass, train_error *error);
void train_pass_destroy(train_memory *memory, train_pass *pass);

/* Forward and backward. tokens, labels [N] on the host. Gradients are those of the sum times grad_scale, added to what is
 * there when `accumulate`. *loss_sum is the sum over the tokens. */
bool train_pass_gradient(train_pass *pass, const int32_t *tokens, const int32_t *labels, double grad_scale,
                         bool accumulate, double *loss_sum, train_error *error);
/* Forward only, fused passes only; a label may be TRAIN_NO_LABEL. */
bool train_pass_loss(train_pass *pass, const int32_t *tokens, const int32_t *labels, double *loss_sum,
                     train_error *error);

/* The parts, on device data and with ops.failed for errors. Forward leaves the last norm's output in y. */
void train_forward(train_pass *pass);
void train_backward(train_pass *pass, bool accumulate);
void train_forward_unfused(train_pass *pass);
/* Head, loss and backward: the full logits. */
void train_head_unfused(train_pass *pass, double grad_scale, bool accumulate);
void train_backward_unfused(train_pass *pass, bool accumulate);

/* q, k, v of a packed [B, T, W] tensor, each [B, T, heads, head_dim]. */
typedef struct train_qkv {
  tigon_tensor q, k, v;
} train_qkv;
train_qkv train_qkv_views(const train_config *config, tigon_tensor qkv);
/* [B, T, ...] as [N, ...] rows. */
tigon_tensor train_rows(tigon_tensor tensor);
/* Columns [first, first + cols) of a matrix. */
tigon_tensor train_cols(tigon_tensor tensor, int64_t first, int64_t cols);

#endif
