/* Tigon's operators as a model calls them, in order and without a check after each: the first failure sticks, and what
 * follows does nothing. In the planning mode nothing runs and the workspace that the calls need is measured instead, so
 * that a pass is planned by the very code that runs it. */
#ifndef TRAIN_OPS_H
#define TRAIN_OPS_H

#include <tigon/tigon.h>

#include "memory.h"

enum { TRAIN_NO_LABEL = -1 /* the label of a token that does not count */ };

typedef struct train_ops {
  tigon_context *context;
  train_error *error; /* error of the current call */
  bool failed;
  bool planning;
  train_block workspace;
  size_t workspace_need; /* bytes, by planning */
  size_t head_grant;     /* bytes of workspace that the fused head should have beyond its minimum, when it likes them */
} train_ops;

/* After planning: allocates the workspace and leaves the planning mode. */
bool train_ops_ready(train_ops *ops, train_memory *memory, train_error *error);

void train_op_linear(train_ops *ops, tigon_tensor x, tigon_tensor w, tigon_tensor y);
/* dw (accumulated when asked) and dx are computed by calls of their own, so that dx may take the memory of x. */
void train_op_linear_dw(train_ops *ops, tigon_tensor dy, tigon_tensor x, tigon_tensor dw, bool accumulate);
void train_op_linear_dx(train_ops *ops, tigon_tensor dy, tigon_tensor w, tigon_tensor dx);

void train_op_norm(train_ops *ops, tigon_tensor x, tigon_tensor w, tigon_tensor y, tigon_tensor rstd, double eps);
void train_op_add_norm(train_ops *ops, tigon_tensor x, tigon_tensor residual, tigon_tensor w, tigon_tensor s,
                       tigon_tensor y, tigon_tensor rstd, double eps);
/* ds absent: zero. */
void train_op_add_norm_bwd(train_ops *ops, tigon_tensor dy, tigon_tensor ds, tigon_tensor s, tigon_tensor w,
                           tigon_tensor rstd, tigon_tensor dx, tigon_tensor dw, bool accumulate);

/* In place. positions absent: 0, 1, ... */
void train_op_rope(train_ops *ops, tigon_tensor q, tigon_tensor k, tigon_tensor cosine, tigon_tensor sine,
                   tigon_tensor positions);
void train_op_rope_bwd(train_ops *ops, tigon_tensor dq, tigon_tensor dk, tigon_tensor cosine, tigon_tensor sine);

/* Causal. */
void train_op_attention(train_ops *ops, tigon_tensor q, tigon_tensor k, tigon_tensor v, tigon_tensor o,
                        tigon_tensor lse);
void train_op_attention_bwd(train_ops *ops, const tigon_attention_bwd_args *given);

void train_op_swiglu(train_ops *ops, tigon_tensor gate, tigon_tensor up, tigon_tensor c);
/* dgate and dup take the memory of gate and up. */
void train_op_swiglu_bwd(train_ops *ops, tigon_tensor dc, tigon_tensor gate, tigon_tensor up);

void train_op_embedding(train_ops *ops, tigon_tensor table, tigon_tensor tokens, tigon_tensor y);
void train_op_embedding_bwd(train_ops *ops, tigon_tensor dy, tigon_tensor tokens, tigon_tensor dtable, bool accumulate);

/* Head and loss: the sum over the tokens. With dweight, the gradients scaled by grad_scale too; dhidden is hidden. */
void train_op_head(train_ops *ops, tigon_tensor hidden, tigon_tensor weight, tigon_tensor labels, tigon_tensor loss);
void train_op_head_grad(train_ops *ops, tigon_tensor hidden, tigon_tensor weight, tigon_tensor labels,
                        tigon_tensor loss, double grad_scale, tigon_tensor dweight, bool accumulate);

#endif
