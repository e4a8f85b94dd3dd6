/* preference_loss: from the log-probabilities of whole sequences to a preference loss, and to its gradient in the same call.
 *
 * Sequence s of N has logps[s], the sum of its tokens' log-probabilities, and ref[s], the same of the reference model
 * (absent: 0). With counts both are divided by counts[s], and are means. A sequence with counts[s] <= 0 has the mean 0 and the
 * gradient 0. With these values l = logps[s] - ref[s], and rewards[s] = beta * l.
 *
 * A kind up to ORPO takes pairs: N is even, and P = N / 2. Pair p is the chosen sequence p and the rejected sequence P + p. A
 * and B are their rewards, and a and b their l. e is label_smoothing, s the logistic function, and h = A - B - gamma:
 *   SIGMOID    -(1 - e) log s(h) - e log s(-h)                    DPO, and with e cDPO; CPO: without ref;
 *                                                                 SimPO: without ref, with counts and gamma
 *   HINGE      max(0, 1 - h)                                      its gradient at h = 1 is 0
 *   IPO        ((h - 1/2) / beta)^2                               with counts, as its authors run it
 *   EXO_PAIR   s(h) (log s(h) - log(1 - e)) + s(-h) (log s(-h) - log e),   e = 0 meaning 0.001
 *   NCA_PAIR   -log s(A) - log s(-A) / 2 - log s(-B) / 2
 *   ROBUST     (-(1 - e) log s(h) + e log s(-h)) / (1 - 2 e)
 *   BCO_PAIR   -log s(A - shift) - log s(shift - B)               shift is a running mean of the rewards
 *   SPPO_HARD  ((A - 1/2) / beta)^2 + ((B + 1/2) / beta)^2
 *   APO_ZERO   1 - s(A) + s(B)
 *   APO_DOWN   s(A) + 1 - s(h)
 *   DISCOPOP   -log s(h) (1 - m) + e^-h m,  m = s(h / tau)
 *   ORPO       -beta log s(o(a) - o(b)),  o(l) = l - log(1 - e^l) the log-odds, o = 0 where counts[s] <= 0
 * A kind from KTO on takes single sequences. A sequence is desirable (y = 1) where labels[s] is not 0, else undesirable (y = -1).
 * Its weight w_y is desirable_weight or undesirable_weight:
 *   KTO        w_y (1 - s(y beta (l - shift)))                    shift is an estimate of the KL divergence, which the caller
 *                                                                 clamps to >= 0; without it this is APO_ZERO_UNPAIRED
 *   BCO        -w_y log s(y (beta l - shift))
 * A number that a kind does not name has no effect in it.
 *
 * pair_loss has the loss of each of the M pairs or sequences, and
 *   loss = (sum of pair_loss) / D - nll_weight * (sum of nll_logps) / max(1, sum of nll_counts)
 *   dlogps[s] = d loss / d logps[s]        dnll_logps[i] = d loss / d nll_logps[i]
 * with D = max(1, denominator), or without a denominator max(1, M). The upstream gradient of a token's log-probability is its
 * sequence's dlogps if the token counts. An entry with nll_counts[i] <= 0 is in neither sum. Without nll_logps the loss has no
 * such term.
 *   accuracy = the share of pairs with A > B, or of sequences with y * reward > 0
 *   margin = the mean reward of chosen or desirable sequences less that of the others; a mean of none is 0
 * Both are 0 where M is 0. ref, shift and denominator get no gradient.
 *
 * Any finite number is legal. h = -10^4 has a SIGMOID of 10^4, and h = 10^4 has one of 0. e^-h never overflows, because tau <= 1.
 * ORPO is for l < 0. A chosen mean of 0 gives the loss 0 with a finite gradient, and a rejected mean of 0 gives the loss Inf. If
 * both are 0, or an l > 0, the loss is NaN. NaN and Inf of a sequence reach the results of its pair, and all sums.
 *
 * Shapes: logps, ref, counts, labels, rewards, dlogps [N]; nll_logps, nll_counts, dnll_logps [K]; pair_loss [P], for single
 *   sequences [N]; shift [1], or as pair_loss; denominator, loss, accuracy, margin [1]. N = 0 is legal.
 * dtypes: counts, labels, nll_counts i32 or i64, one for each; all others f32. Arithmetic is in f32, sums over sequences in f64.
 * Strides: contiguous. In place: no output may overlap any other tensor.
 * Errors: INVALID, ALIAS, UNSUPPORTED.
 * Sources: DPO (Rafailov et al. 2023, arXiv:2305.18290); IPO (Azar et al. 2023, arXiv:2310.12036); KTO (Ethayarajh et al. 2024,
 *   arXiv:2402.01306); ORPO (Hong et al. 2024, arXiv:2403.07691); SimPO (Meng et al. 2024, arXiv:2405.14734).
 *   docs/op/preference_loss.md names more papers. */
#ifndef TIGON_OP_PREFERENCE_LOSS_H
#define TIGON_OP_PREFERENCE_LOSS_H

#include <tigon/context.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tigon_preference_kind {
  TIGON_PREFERENCE_SIGMOID = 0,
  TIGON_PREFERENCE_HINGE = 1,
  TIGON_PREFERENCE_IPO = 2,
  TIGON_PREFERENCE_EXO_PAIR = 3,
  TIGON_PREFERENCE_NCA_PAIR = 4,
  TIGON_PREFERENCE_ROBUST = 5,
  TIGON_PREFERENCE_BCO_PAIR = 6,
  TIGON_PREFERENCE_SPPO_HARD = 7,
  TIGON_PREFERENCE_APO_ZERO = 8,
  TIGON_PREFERENCE_APO_DOWN = 9,
  TIGON_PREFERENCE_DISCOPOP = 10,
  TIGON_PREFERENCE_ORPO = 11,
  TIGON_PREFERENCE_KTO = 12, /* this and the next one: single sequences */
  TIGON_PREFERENCE_BCO = 13,
} tigon_preference_kind;

typedef struct tigon_preference_loss_options {
  tigon_preference_kind kind;
  double beta;               /* 0 means 0.1; else > 0 */
  double label_smoothing;    /* [0, 1/2) */
  double gamma;              /* a margin of rewards */
  double tau;                /* 0 means 0.05; else > 0 and <= 1 */
  double desirable_weight;   /* 0 means 1; else > 0 */
  double undesirable_weight; /* 0 means 1; else > 0 */
  double nll_weight;         /* 0 means 1; else > 0 */
  uint64_t reserved[4];
} tigon_preference_loss_options;

typedef struct tigon_preference_loss_fwd_args {
  tigon_tensor logps;       /* in [N] f32 */
  tigon_tensor ref;         /* in [N] f32; absent: 0; absent with ORPO */
  tigon_tensor counts;      /* in [N] tokens; absent: logps and ref are not divided */
  tigon_tensor labels;      /* in [N], present for single sequences, else absent */
  tigon_tensor shift;       /* in [1] or as pair_loss f32; absent: 0; absent with kinds that do not name it */
  tigon_tensor denominator; /* in [1] f32; absent: M */
  tigon_tensor nll_logps;   /* in [K] f32, sums of log-probabilities as logps; absent: no such term */
  tigon_tensor nll_counts;  /* in [K] tokens; present with nll_logps */
  tigon_preference_loss_options options;
  tigon_tensor loss;       /* out [1] f32 */
  tigon_tensor pair_loss;  /* out [P] or [N] f32; may be absent, as all that follow */
  tigon_tensor rewards;    /* out [N] f32 */
  tigon_tensor dlogps;     /* out [N] f32 */
  tigon_tensor dnll_logps; /* out [K] f32; absent without nll_logps */
  tigon_tensor accuracy;   /* out [1] f32 */
  tigon_tensor margin;     /* out [1] f32 */
  uint64_t reserved[4];
} tigon_preference_loss_fwd_args;

TIGON_API tigon_status tigon_preference_loss_fwd(tigon_context *context, const tigon_preference_loss_fwd_args *args);

#ifdef __cplusplus
}
#endif

#endif
