/* policy_loss: from the log-probabilities of sampled tokens to a policy-gradient loss of the GRPO family, and to its gradient in
 * the same call.
 *
 * The call has N tokens of S sequences. Sequence s has tokens segments[s] to segments[s + 1] - 1. A padded batch [S, T] has the
 * segments 0, T, 2 T, ..., and a mask. A token counts where mask is not 0. Without a mask each token counts. n_s is the number
 * of tokens of sequence s that count, and n that of all tokens; each is at least 1. A token that does not count is not read, and
 * has the loss and gradient 0.
 * For token t, l = logprob[t] and o = old[t] (absent: l, as a constant). Advantage a and sampler ratio c (absent: 1) belong to
 * the token or to its sequence.
 *   rho = e^(l - o); at sequence level e^(sum of l - o over the tokens that count / n_s)
 *   GRPO, BNPO, DR_GRPO, DAPO, LUSPO
 *          f = -min(min(rho, delta) a, clip(rho, 1 - eps_low, 1 + eps_high) a)              without delta min(rho, delta) is rho
 *   CISPO  f = -[min(rho, eps_high)] a l                                                    [ ] is a constant for the gradient
 *   SAPO   f = -(4 / tau) s(tau (rho - 1)) a,   tau = tau_positive where a > 0, else tau_negative,   s the logistic function
 *   VESPO  f = -[e^(lambda + k w - lambda e^w)] a l
 *          w = the sum of l - o, each clamped to -20 .. 20, and of log c, each clamped to log 10^-8 .. 20 (c < 0 as 0). A sequence's
 *          c counts once. w is clamped to log 10^-8 .. 20. k and lambda depend on a >= 0 or a < 0. rho is a token's at either level
 *   token_loss[t] = c f + kl_weight k3,   k3 = e^d - d - 1,   d = ref[t] - l (absent: 0)     VESPO: without c
 *                                         with kl_bias_corrected k3 rho in the place of k3
 *   loss = sum over sequences of w_s (sum of token_loss) - entropy_weight / n (sum of entropy over the tokens that count)
 * with D = max(1, denominator), or without a denominator the last number of a line:
 *   GRPO, SAPO   w_s = 1 / (n_s D), S          DR_GRPO  w_s = 1 / (L D), S
 *   BNPO, DAPO, CISPO, VESPO  w_s = 1 / D, n   LUSPO    w_s = n_s / (L D), at sequence level 1 / D, S
 * L is max_length, or without it N / S, the width of a padded batch.
 *   dlogprob[t] = d loss / d logprob[t]        dentropy[t] = d loss / d entropy[t] = -entropy_weight / n
 * The gradient of min and clip is that of the chosen branch. For a < 0 and delta below the clip's end it is the clip's.
 *   kl = the mean of k3, mean_entropy and mean_ratio of entropy and rho, over the tokens that count
 *   clip_low = the share of them with rho < 1 - eps_low and a < 0, and clip_high that with rho > 1 + eps_high and a > 0. For
 *          CISPO clip_low is 0 and clip_high has rho > eps_high and a > 0. For SAPO and VESPO both are 0
 * If no token counts all of these are 0. NaN and Inf of a token reach its own results and all sums. At sequence level they reach
 * all results of its sequence.
 * Segments are wrong if they do not begin with 0, do not end with N, or decrease. A host device then refuses the call. Another
 * device stays within the N tokens, does not write tokens of no sequence, and reports at tigon_context_sync().
 *
 * Shapes: logprob, old, ref, entropy, mask, token_loss, dlogprob, dentropy [N]; segments [S + 1]; advantage [S], with
 *   token_advantage [N]; ratio [S], with token_ratio [N]; all others [1]. N = 0 and S = 0 are legal.
 * dtypes: mask and segments i32 or i64, one for each; all others f32. Arithmetic is in f32, sums over tokens in f64.
 * Strides: contiguous. In place: no output may overlap any other tensor.
 * Errors: INVALID, ALIAS, UNSUPPORTED.
 * Sources: GRPO (Shao et al. 2024, arXiv:2402.03300), Dr. GRPO (Liu et al. 2025, arXiv:2503.20783), DAPO (Yu et al. 2025,
 *   arXiv:2503.14476), GSPO, the sequence level (Zheng et al. 2025, arXiv:2507.18071), CISPO (MiniMax 2025, arXiv:2506.13585). */
#ifndef TIGON_OP_POLICY_LOSS_H
#define TIGON_OP_POLICY_LOSS_H

#include <tigon/context.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tigon_policy_kind {
  TIGON_POLICY_GRPO = 0,
  TIGON_POLICY_BNPO = 1,
  TIGON_POLICY_DR_GRPO = 2,
  TIGON_POLICY_DAPO = 3,
  TIGON_POLICY_LUSPO = 4,
  TIGON_POLICY_CISPO = 5,
  TIGON_POLICY_SAPO = 6,
  TIGON_POLICY_VESPO = 7,
} tigon_policy_kind;

typedef struct tigon_policy_loss_options {
  tigon_policy_kind kind;
  int sequence_level;     /* 1: rho belongs to sequences */
  int token_advantage;    /* 1: advantage is [N] */
  int token_ratio;        /* 1: ratio is [N] */
  int kl_bias_corrected;  /* 1: k3 is weighted by rho */
  double eps_low;         /* 0 means 0.2; else > 0 */
  double eps_high;        /* 0 means 0.2, with CISPO 5; else > 0 */
  double delta;           /* 0: none; else > 0 */
  double tau_positive;    /* 0 means 1; else > 0 */
  double tau_negative;    /* 0 means 1.05; else > 0 */
  double k_positive;      /* 0 means 2; else > 0 */
  double lambda_positive; /* 0 means 3; else > 0 */
  double k_negative;      /* 0 means 3; else > 0 */
  double lambda_negative; /* 0 means 2; else > 0 */
  double kl_weight;       /* >= 0 */
  double entropy_weight;  /* finite */
  int64_t max_length;     /* >= 0; 0: N / S */
  uint64_t reserved[4];
} tigon_policy_loss_options;

typedef struct tigon_policy_loss_fwd_args {
  tigon_tensor logprob;     /* in [N] f32 */
  tigon_tensor segments;    /* in [S + 1] */
  tigon_tensor advantage;   /* in [S] or [N] f32 */
  tigon_tensor old;         /* in [N] f32, may be absent, as all that follow */
  tigon_tensor ref;         /* in [N] f32 */
  tigon_tensor entropy;     /* in [N] f32 */
  tigon_tensor ratio;       /* in [S] or [N] f32, > 0 */
  tigon_tensor mask;        /* in [N] */
  tigon_tensor denominator; /* in [1] f32 */
  tigon_policy_loss_options options;
  tigon_tensor loss;         /* out [1] f32 */
  tigon_tensor token_loss;   /* out [N] f32; may be absent, as all that follow */
  tigon_tensor dlogprob;     /* out [N] f32 */
  tigon_tensor dentropy;     /* out [N] f32 */
  tigon_tensor kl;           /* out [1] f32 */
  tigon_tensor clip_low;     /* out [1] f32 */
  tigon_tensor clip_high;    /* out [1] f32 */
  tigon_tensor mean_entropy; /* out [1] f32 */
  tigon_tensor mean_ratio;   /* out [1] f32 */
  uint64_t reserved[4];
} tigon_policy_loss_fwd_args;

TIGON_API tigon_status tigon_policy_loss_fwd(tigon_context *context, const tigon_policy_loss_fwd_args *args);

#ifdef __cplusplus
}
#endif

#endif
