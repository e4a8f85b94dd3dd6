/* What is fuzzed: every entry point of the library, its struct, and what its tensors are when they are legal. */
#ifndef TIGON_FUZZ_TARGETS_H
#define TIGON_FUZZ_TARGETS_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "tigon/tigon.h"

enum { MOST_TENSORS = 16, PARAMS = 2 };

/* adamw's lists lie behind their argument struct, which is made to point there by the call. */
typedef struct adamw_step {
  tigon_adamw_step_args args;
  tigon_adamw_param params[PARAMS];
} adamw_step;
typedef struct adamw_clip {
  tigon_adamw_clip_args args;
  tigon_tensor grads[PARAMS];
} adamw_clip;

typedef union arguments {
  tigon_rms_norm_fwd_args rms_norm_fwd;
  tigon_rms_norm_bwd_args rms_norm_bwd;
  tigon_fused_add_rms_norm_fwd_args fused_add_rms_norm_fwd;
  tigon_fused_add_rms_norm_bwd_args fused_add_rms_norm_bwd;
  tigon_layer_norm_fwd_args layer_norm_fwd;
  tigon_layer_norm_bwd_args layer_norm_bwd;
  tigon_group_norm_fwd_args group_norm_fwd;
  tigon_group_norm_bwd_args group_norm_bwd;
  tigon_modulated_rms_norm_fwd_args modulated_rms_norm_fwd;
  tigon_modulated_rms_norm_bwd_args modulated_rms_norm_bwd;
  tigon_swiglu_fwd_args swiglu_fwd;
  tigon_swiglu_bwd_args swiglu_bwd;
  tigon_geglu_fwd_args geglu_fwd;
  tigon_geglu_bwd_args geglu_bwd;
  tigon_relu_squared_fwd_args relu_squared_fwd;
  tigon_relu_squared_bwd_args relu_squared_bwd;
  tigon_rope_args rope;
  tigon_embedding_fwd_args embedding_fwd;
  tigon_embedding_bwd_args embedding_bwd;
  tigon_softmax_fwd_args softmax_fwd;
  tigon_softmax_bwd_args softmax_bwd;
  tigon_attention_fwd_args attention_fwd;
  tigon_attention_bwd_args attention_bwd;
  tigon_cross_entropy_fwd_args cross_entropy_fwd;
  tigon_cross_entropy_bwd_args cross_entropy_bwd;
  tigon_fused_linear_cross_entropy_args fused_linear_cross_entropy;
  tigon_linear_fwd_args linear_fwd;
  tigon_linear_bwd_args linear_bwd;
  adamw_step adamw_step;
  adamw_clip adamw_clip;
} arguments;

/* One tensor: where it lies in the arguments; its shape, a letter for each dimension (see fill_sizes()); its dtype: x the
 * call's, f f32, o either, l i64, e i32, and a capital letter for an index below that dimension. */
typedef struct part {
  size_t offset;
  const char *shape;
  char dtype;
  bool out, optional;
} part;

typedef struct target {
  const char *name;
  tigon_status (*call)(tigon_context *context, const arguments *a);
  size_t bytes;                      /* of the struct */
  size_t workspace, workspace_bytes; /* 0: none */
  part parts[MOST_TENSORS];
} target;

#define CALL(op) \
  static tigon_status call_##op(tigon_context *context, const arguments *a) { return tigon_##op(context, &a->op); }
CALL(rms_norm_fwd)
CALL(rms_norm_bwd)
CALL(fused_add_rms_norm_fwd)
CALL(fused_add_rms_norm_bwd)
CALL(layer_norm_fwd)
CALL(layer_norm_bwd)
CALL(group_norm_fwd)
CALL(group_norm_bwd)
CALL(modulated_rms_norm_fwd)
CALL(modulated_rms_norm_bwd)
CALL(swiglu_fwd)
CALL(swiglu_bwd)
CALL(geglu_fwd)
CALL(geglu_bwd)
CALL(relu_squared_fwd)
CALL(relu_squared_bwd)
CALL(embedding_fwd)
CALL(embedding_bwd)
CALL(softmax_fwd)
CALL(softmax_bwd)
CALL(attention_fwd)
CALL(attention_bwd)
CALL(cross_entropy_fwd)
CALL(cross_entropy_bwd)
CALL(linear_fwd)
CALL(linear_bwd)
#undef CALL

static tigon_status call_rope_fwd(tigon_context *context, const arguments *a) {
  return tigon_rope_fwd(context, &a->rope);
}
static tigon_status call_rope_bwd(tigon_context *context, const arguments *a) {
  return tigon_rope_bwd(context, &a->rope);
}
static tigon_status call_fused_fwd(tigon_context *context, const arguments *a) {
  return tigon_fused_linear_cross_entropy_fwd(context, &a->fused_linear_cross_entropy);
}
static tigon_status call_fused_bwd(tigon_context *context, const arguments *a) {
  return tigon_fused_linear_cross_entropy_bwd(context, &a->fused_linear_cross_entropy);
}
/* A list cannot be checked for its length, and what is behind its end is no tensor of the call. */
static int64_t at_most(int64_t count) { return count > PARAMS ? PARAMS : count; }
static void forget_behind(int64_t count, void *list, size_t size) {
  const size_t held = count > 0 ? (size_t)at_most(count) : 0;
  memset((char *)list + held * size, 0, (PARAMS - held) * size);
}
static tigon_status call_adamw_step(tigon_context *context, const arguments *a) {
  tigon_adamw_step_args args = a->adamw_step.args;
  args.params = a->adamw_step.params;
  args.count = at_most(args.count);
  return tigon_adamw_step(context, &args);
}
static tigon_status call_adamw_clip(tigon_context *context, const arguments *a) {
  tigon_adamw_clip_args args = a->adamw_clip.args;
  args.grads = a->adamw_clip.grads;
  args.count = at_most(args.count);
  return tigon_adamw_clip(context, &args);
}

#define IN(op, field, shape, dtype) \
  { offsetof(op, field), shape, dtype, false, false }
#define MAY(op, field, shape, dtype) \
  { offsetof(op, field), shape, dtype, false, true }
#define OUT(op, field, shape, dtype) \
  { offsetof(op, field), shape, dtype, true, false }
#define WANT(op, field, shape, dtype) \
  { offsetof(op, field), shape, dtype, true, true }
#define WORK(op) offsetof(op, workspace), offsetof(op, workspace_bytes)
#define NO_WORK 0, 0

/* clang-format off: a line a tensor, or a few that belong together */
#define A(op) tigon_##op##_args
#define FUSED A(fused_linear_cross_entropy)
#define LOSS_OPTIONS(type, cols) MAY(type, options.weight, cols, 'f'), MAY(type, options.token_scale, "r", 'f')
#define LOSS_OUTPUTS(type)                                                                             \
  WANT(type, out.loss, "1", 'f'), WANT(type, out.token_loss, "r", 'f'), WANT(type, out.lse, "r", 'f'), \
      WANT(type, out.argmax, "r", 'l'), WANT(type, out.error, "1", 'e')

static const target targets[] = {
    {"rms_norm_fwd",
     call_rms_norm_fwd,
     sizeof(A(rms_norm_fwd)),
     NO_WORK,
     {IN(A(rms_norm_fwd), x, "rc", 'x'), MAY(A(rms_norm_fwd), w, "c", 'o'), OUT(A(rms_norm_fwd), y, "rc", 'x'),
      WANT(A(rms_norm_fwd), rstd, "r", 'f')}},
    {"rms_norm_bwd",
     call_rms_norm_bwd,
     sizeof(A(rms_norm_bwd)),
     WORK(A(rms_norm_bwd)),
     {IN(A(rms_norm_bwd), dy, "rc", 'x'), IN(A(rms_norm_bwd), x, "rc", 'x'), MAY(A(rms_norm_bwd), w, "c", 'o'),
      IN(A(rms_norm_bwd), rstd, "r", 'f'), OUT(A(rms_norm_bwd), dx, "rc", 'x'), WANT(A(rms_norm_bwd), dw, "c", 'o')}},
    {"fused_add_rms_norm_fwd",
     call_fused_add_rms_norm_fwd,
     sizeof(A(fused_add_rms_norm_fwd)),
     NO_WORK,
     {IN(A(fused_add_rms_norm_fwd), x, "rc", 'x'), IN(A(fused_add_rms_norm_fwd), residual, "rc", 'x'),
      MAY(A(fused_add_rms_norm_fwd), w, "c", 'o'), OUT(A(fused_add_rms_norm_fwd), s, "rc", 'x'),
      OUT(A(fused_add_rms_norm_fwd), y, "rc", 'x'), WANT(A(fused_add_rms_norm_fwd), rstd, "r", 'f')}},
    {"fused_add_rms_norm_bwd",
     call_fused_add_rms_norm_bwd,
     sizeof(A(fused_add_rms_norm_bwd)),
     WORK(A(fused_add_rms_norm_bwd)),
     {IN(A(fused_add_rms_norm_bwd), dy, "rc", 'x'), MAY(A(fused_add_rms_norm_bwd), ds, "rc", 'x'),
      IN(A(fused_add_rms_norm_bwd), s, "rc", 'x'), MAY(A(fused_add_rms_norm_bwd), w, "c", 'o'),
      IN(A(fused_add_rms_norm_bwd), rstd, "r", 'f'), OUT(A(fused_add_rms_norm_bwd), dx, "rc", 'x'),
      WANT(A(fused_add_rms_norm_bwd), dw, "c", 'o')}},
    {"layer_norm_fwd",
     call_layer_norm_fwd,
     sizeof(A(layer_norm_fwd)),
     NO_WORK,
     {IN(A(layer_norm_fwd), x, "rc", 'x'), MAY(A(layer_norm_fwd), w, "c", 'o'), MAY(A(layer_norm_fwd), b, "c", 'o'),
      OUT(A(layer_norm_fwd), y, "rc", 'x'), WANT(A(layer_norm_fwd), mean, "r", 'f'),
      WANT(A(layer_norm_fwd), rstd, "r", 'f')}},
    {"layer_norm_bwd",
     call_layer_norm_bwd,
     sizeof(A(layer_norm_bwd)),
     WORK(A(layer_norm_bwd)),
     {IN(A(layer_norm_bwd), dy, "rc", 'x'), IN(A(layer_norm_bwd), x, "rc", 'x'), MAY(A(layer_norm_bwd), w, "c", 'o'),
      IN(A(layer_norm_bwd), mean, "r", 'f'), IN(A(layer_norm_bwd), rstd, "r", 'f'),
      OUT(A(layer_norm_bwd), dx, "rc", 'x'), WANT(A(layer_norm_bwd), dw, "c", 'o'),
      WANT(A(layer_norm_bwd), db, "c", 'o')}},
    {"group_norm_fwd",
     call_group_norm_fwd,
     sizeof(A(group_norm_fwd)),
     NO_WORK,
     {IN(A(group_norm_fwd), x, "bnt", 'x'), MAY(A(group_norm_fwd), w, "n", 'o'), MAY(A(group_norm_fwd), b, "n", 'o'),
      OUT(A(group_norm_fwd), y, "bnt", 'x'), WANT(A(group_norm_fwd), mean, "bg", 'f'),
      WANT(A(group_norm_fwd), rstd, "bg", 'f')}},
    {"group_norm_bwd",
     call_group_norm_bwd,
     sizeof(A(group_norm_bwd)),
     WORK(A(group_norm_bwd)),
     {IN(A(group_norm_bwd), dy, "bnt", 'x'), IN(A(group_norm_bwd), x, "bnt", 'x'), MAY(A(group_norm_bwd), w, "n", 'o'),
      IN(A(group_norm_bwd), mean, "bg", 'f'), IN(A(group_norm_bwd), rstd, "bg", 'f'),
      OUT(A(group_norm_bwd), dx, "bnt", 'x'), WANT(A(group_norm_bwd), dw, "n", 'o'),
      WANT(A(group_norm_bwd), db, "n", 'o')}},
    {"modulated_rms_norm_fwd",
     call_modulated_rms_norm_fwd,
     sizeof(A(modulated_rms_norm_fwd)),
     NO_WORK,
     {IN(A(modulated_rms_norm_fwd), x, "btc", 'x'), MAY(A(modulated_rms_norm_fwd), w, "c", 'o'),
      IN(A(modulated_rms_norm_fwd), scale, "bc", 'x'), MAY(A(modulated_rms_norm_fwd), shift, "bc", 'x'),
      OUT(A(modulated_rms_norm_fwd), y, "btc", 'x'), WANT(A(modulated_rms_norm_fwd), rstd, "m", 'f')}},
    {"modulated_rms_norm_bwd",
     call_modulated_rms_norm_bwd,
     sizeof(A(modulated_rms_norm_bwd)),
     WORK(A(modulated_rms_norm_bwd)),
     {IN(A(modulated_rms_norm_bwd), dy, "btc", 'x'), IN(A(modulated_rms_norm_bwd), x, "btc", 'x'),
      MAY(A(modulated_rms_norm_bwd), w, "c", 'o'), IN(A(modulated_rms_norm_bwd), scale, "bc", 'x'),
      IN(A(modulated_rms_norm_bwd), rstd, "m", 'f'), OUT(A(modulated_rms_norm_bwd), dx, "btc", 'x'),
      WANT(A(modulated_rms_norm_bwd), dw, "c", 'o'), WANT(A(modulated_rms_norm_bwd), dscale, "bc", 'o'),
      WANT(A(modulated_rms_norm_bwd), dshift, "bc", 'o')}},
    {"swiglu_fwd",
     call_swiglu_fwd,
     sizeof(A(swiglu_fwd)),
     NO_WORK,
     {IN(A(swiglu_fwd), a, "rc", 'x'), IN(A(swiglu_fwd), b, "rc", 'x'), OUT(A(swiglu_fwd), c, "rc", 'x')}},
    {"swiglu_bwd",
     call_swiglu_bwd,
     sizeof(A(swiglu_bwd)),
     NO_WORK,
     {IN(A(swiglu_bwd), dc, "rc", 'x'), IN(A(swiglu_bwd), a, "rc", 'x'), IN(A(swiglu_bwd), b, "rc", 'x'),
      OUT(A(swiglu_bwd), da, "rc", 'x'), OUT(A(swiglu_bwd), db, "rc", 'x')}},
    {"geglu_fwd",
     call_geglu_fwd,
     sizeof(A(geglu_fwd)),
     NO_WORK,
     {IN(A(geglu_fwd), a, "rc", 'x'), IN(A(geglu_fwd), b, "rc", 'x'), OUT(A(geglu_fwd), c, "rc", 'x')}},
    {"geglu_bwd",
     call_geglu_bwd,
     sizeof(A(geglu_bwd)),
     NO_WORK,
     {IN(A(geglu_bwd), dc, "rc", 'x'), IN(A(geglu_bwd), a, "rc", 'x'), IN(A(geglu_bwd), b, "rc", 'x'),
      OUT(A(geglu_bwd), da, "rc", 'x'), OUT(A(geglu_bwd), db, "rc", 'x')}},
    {"relu_squared_fwd",
     call_relu_squared_fwd,
     sizeof(A(relu_squared_fwd)),
     NO_WORK,
     {IN(A(relu_squared_fwd), x, "rc", 'x'), OUT(A(relu_squared_fwd), y, "rc", 'x')}},
    {"relu_squared_bwd",
     call_relu_squared_bwd,
     sizeof(A(relu_squared_bwd)),
     NO_WORK,
     {IN(A(relu_squared_bwd), dy, "rc", 'x'), IN(A(relu_squared_bwd), x, "rc", 'x'),
      OUT(A(relu_squared_bwd), dx, "rc", 'x')}},
    {"rope_fwd",
     call_rope_fwd,
     sizeof(A(rope)),
     NO_WORK,
     {IN(A(rope), q, "btpe", 'x'), IN(A(rope), k, "btke", 'x'), IN(A(rope), cos, "sf", 'o'),
      IN(A(rope), sin, "sf", 'o'), MAY(A(rope), positions, "bt", 'S'), OUT(A(rope), q_out, "btpe", 'x'),
      OUT(A(rope), k_out, "btke", 'x'), WANT(A(rope), error, "1", 'e')}},
    {"rope_bwd",
     call_rope_bwd,
     sizeof(A(rope)),
     NO_WORK,
     {IN(A(rope), q, "btpe", 'x'), IN(A(rope), k, "btke", 'x'), IN(A(rope), cos, "sf", 'o'),
      IN(A(rope), sin, "sf", 'o'), MAY(A(rope), positions, "bt", 'S'), OUT(A(rope), q_out, "btpe", 'x'),
      OUT(A(rope), k_out, "btke", 'x'), WANT(A(rope), error, "1", 'e')}},
    {"embedding_fwd",
     call_embedding_fwd,
     sizeof(A(embedding_fwd)),
     NO_WORK,
     {IN(A(embedding_fwd), table, "vc", 'x'), IN(A(embedding_fwd), idx, "r", 'V'), OUT(A(embedding_fwd), y, "rc", 'x'),
      WANT(A(embedding_fwd), error, "1", 'e')}},
    {"embedding_bwd",
     call_embedding_bwd,
     sizeof(A(embedding_bwd)),
     WORK(A(embedding_bwd)),
     {IN(A(embedding_bwd), dy, "rw", 'x'), IN(A(embedding_bwd), idx, "r", 'V'),
      OUT(A(embedding_bwd), dtable, "vw", 'o'), WANT(A(embedding_bwd), error, "1", 'e')}},
    {"softmax_fwd",
     call_softmax_fwd,
     sizeof(A(softmax_fwd)),
     NO_WORK,
     {IN(A(softmax_fwd), x, "btc", 'x'), MAY(A(softmax_fwd), mask, "tc", 'o'), OUT(A(softmax_fwd), y, "btc", 'x')}},
    {"softmax_fwd",
     call_softmax_fwd,
     sizeof(A(softmax_fwd)),
     NO_WORK,
     {IN(A(softmax_fwd), x, "btc", 'x'), MAY(A(softmax_fwd), mask, "btc", 'o'), OUT(A(softmax_fwd), y, "btc", 'x')}},
    {"softmax_bwd",
     call_softmax_bwd,
     sizeof(A(softmax_bwd)),
     NO_WORK,
     {IN(A(softmax_bwd), dy, "rc", 'x'), IN(A(softmax_bwd), y, "rc", 'x'), OUT(A(softmax_bwd), dx, "rc", 'x')}},
    {"attention_fwd",
     call_attention_fwd,
     sizeof(A(attention_fwd)),
     NO_WORK,
     {IN(A(attention_fwd), q, "btpd", 'x'), IN(A(attention_fwd), k, "bskd", 'x'), IN(A(attention_fwd), v, "bskd", 'x'),
      OUT(A(attention_fwd), o, "btpd", 'x'), WANT(A(attention_fwd), lse, "bpt", 'f')}},
    {"attention_bwd",
     call_attention_bwd,
     sizeof(A(attention_bwd)),
     WORK(A(attention_bwd)),
     {IN(A(attention_bwd), d_o, "btpd", 'x'), IN(A(attention_bwd), q, "btpd", 'x'),
      IN(A(attention_bwd), k, "bskd", 'x'), IN(A(attention_bwd), v, "bskd", 'x'), IN(A(attention_bwd), o, "btpd", 'x'),
      IN(A(attention_bwd), lse, "bpt", 'f'), OUT(A(attention_bwd), dq, "btpd", 'x'),
      OUT(A(attention_bwd), dk, "bskd", 'x'), OUT(A(attention_bwd), dv, "bskd", 'x')}},
    {"cross_entropy_fwd",
     call_cross_entropy_fwd,
     sizeof(A(cross_entropy_fwd)),
     WORK(A(cross_entropy_fwd)),
     {IN(A(cross_entropy_fwd), logits, "rc", 'x'), IN(A(cross_entropy_fwd), labels, "r", 'C'),
      LOSS_OPTIONS(A(cross_entropy_fwd), "c"), LOSS_OUTPUTS(A(cross_entropy_fwd)),
      WANT(A(cross_entropy_fwd), out.z_loss, "r", 'f'), WANT(A(cross_entropy_fwd), out.entropy, "r", 'f'),
      WANT(A(cross_entropy_fwd), dlogits, "rc", 'x'), MAY(A(cross_entropy_fwd), dloss, "1", 'f')}},
    {"cross_entropy_bwd",
     call_cross_entropy_bwd,
     sizeof(A(cross_entropy_bwd)),
     WORK(A(cross_entropy_bwd)),
     {IN(A(cross_entropy_bwd), logits, "rc", 'x'), IN(A(cross_entropy_bwd), labels, "r", 'C'),
      IN(A(cross_entropy_bwd), lse, "r", 'f'), LOSS_OPTIONS(A(cross_entropy_bwd), "c"),
      MAY(A(cross_entropy_bwd), dloss, "1", 'f'), OUT(A(cross_entropy_bwd), dlogits, "rc", 'x'),
      WANT(A(cross_entropy_bwd), error, "1", 'e')}},
    {"fused_linear_cross_entropy_fwd",
     call_fused_fwd,
     sizeof(FUSED),
     WORK(FUSED),
     {IN(FUSED, hidden, "rw", 'x'), IN(FUSED, weight, "vw", 'x'), MAY(FUSED, bias, "v", 'x'),
      IN(FUSED, labels, "r", 'V'), LOSS_OPTIONS(FUSED, "v"), LOSS_OUTPUTS(FUSED), MAY(FUSED, dloss, "1", 'f'),
      WANT(FUSED, dhidden, "rw", 'x'), WANT(FUSED, dweight, "vw", 'o'), WANT(FUSED, dbias, "v", 'o')}},
    {"fused_linear_cross_entropy_bwd",
     call_fused_bwd,
     sizeof(FUSED),
     WORK(FUSED),
     {IN(FUSED, hidden, "rw", 'x'), IN(FUSED, weight, "vw", 'x'), MAY(FUSED, bias, "v", 'x'),
      IN(FUSED, labels, "r", 'V'), LOSS_OPTIONS(FUSED, "v"), MAY(FUSED, dloss, "1", 'f'),
      WANT(FUSED, dhidden, "rw", 'x'), WANT(FUSED, dweight, "vw", 'o'), WANT(FUSED, dbias, "v", 'o')}},
    {"linear_fwd",
     call_linear_fwd,
     sizeof(A(linear_fwd)),
     NO_WORK,
     {IN(A(linear_fwd), x, "rw", 'x'), IN(A(linear_fwd), w, "vw", 'x'), MAY(A(linear_fwd), b, "v", 'o'),
      OUT(A(linear_fwd), y, "rv", 'o')}},
    {"linear_bwd",
     call_linear_bwd,
     sizeof(A(linear_bwd)),
     WORK(A(linear_bwd)),
     {IN(A(linear_bwd), dy, "rv", 'o'), MAY(A(linear_bwd), x, "rw", 'x'), MAY(A(linear_bwd), w, "vw", 'x'),
      WANT(A(linear_bwd), dx, "rw", 'x'), WANT(A(linear_bwd), dw, "vw", 'o'), WANT(A(linear_bwd), db, "v", 'o')}},
    {"adamw_step",
     call_adamw_step,
     sizeof(adamw_step),
     NO_WORK,
     {OUT(adamw_step, params[0].param, "c", 'x'), WANT(adamw_step, params[0].master, "c", 'f'),
      IN(adamw_step, params[0].grad, "c", 'o'), OUT(adamw_step, params[0].exp_avg, "c", 'f'),
      OUT(adamw_step, params[0].exp_avg_sq, "c", 'f'), OUT(adamw_step, params[1].param, "w", 'x'),
      WANT(adamw_step, params[1].master, "w", 'f'), IN(adamw_step, params[1].grad, "w", 'o'),
      OUT(adamw_step, params[1].exp_avg, "w", 'f'), OUT(adamw_step, params[1].exp_avg_sq, "w", 'f'),
      MAY(adamw_step, args.clip_factor, "1", 'f')}},
    {"adamw_clip",
     call_adamw_clip,
     sizeof(adamw_clip),
     offsetof(adamw_clip, args.workspace),
     offsetof(adamw_clip, args.workspace_bytes),
     {IN(adamw_clip, grads[0], "c", 'o'), IN(adamw_clip, grads[1], "w", 'o'), OUT(adamw_clip, args.norm, "1", 'f'),
      OUT(adamw_clip, args.factor, "1", 'f')}},
};
/* clang-format on */
enum { TARGETS = sizeof targets / sizeof *targets };

/* What an op needs besides tensors to be legal; `groups` and `spin` are small numbers. */
static void set_options(const target *t, arguments *a, int64_t groups, unsigned spin) {
  if (t->call == call_group_norm_fwd) a->group_norm_fwd.groups = groups, a->group_norm_fwd.eps = 1e-5;
  if (t->call == call_group_norm_bwd) a->group_norm_bwd.groups = groups;
  if (t->call == call_rms_norm_fwd) a->rms_norm_fwd.eps = 1e-5, a->rms_norm_fwd.casting = (tigon_casting)(spin % 3);
  if (t->call == call_layer_norm_fwd) a->layer_norm_fwd.eps = 1e-5;
  if (t->call == call_fused_add_rms_norm_fwd) a->fused_add_rms_norm_fwd.eps = 1e-5;
  if (t->call == call_modulated_rms_norm_fwd) a->modulated_rms_norm_fwd.eps = 1e-5;
  if (t->call == call_softmax_fwd) a->softmax_fwd.causal = spin % 2;
  if (t->call == call_attention_fwd) a->attention_fwd.causal = spin % 2, a->attention_fwd.window = spin / 2 % 4;
  if (t->call == call_attention_bwd) a->attention_bwd.causal = spin % 2, a->attention_bwd.window = spin / 2 % 4;
  if (t->call == call_adamw_clip) a->adamw_clip.args.count = PARAMS, a->adamw_clip.args.max_norm = spin % 2;
  if (t->call == call_adamw_step) {
    tigon_adamw_step_args *s = &a->adamw_step.args;
    s->count = PARAMS, s->lr = 1e-2, s->beta1 = 0.9, s->beta2 = 0.95, s->eps = 1e-3, s->step = 1 + spin;
  }
  tigon_cross_entropy_options *loss = t->call == call_cross_entropy_fwd   ? &a->cross_entropy_fwd.options
                                      : t->call == call_cross_entropy_bwd ? &a->cross_entropy_bwd.options
                                      : t->call == call_fused_fwd || t->call == call_fused_bwd
                                          ? &a->fused_linear_cross_entropy.options
                                          : NULL;
  if (!loss) return;
  loss->reduction = (tigon_reduction)(spin % 2); /* none has a dloss of its own shape */
  loss->label_smoothing = spin & 2 ? 0.1 : 0;
  loss->softcap = spin & 4 ? 5 : 0;
  loss->has_ignore_index = spin >> 3 & 1;
}

#endif
