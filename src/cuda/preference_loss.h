/* What the launcher and the kernel of preference_loss agree on. */
#ifndef TIGON_CUDA_PREFERENCE_LOSS_H
#define TIGON_CUDA_PREFERENCE_LOSS_H

#include "core/preference_loss.h"

enum { PREFERENCE_THREADS = 256 }; /* threads of the one block */

/* Is a call as most are: DPO's loss of sums, and nothing beside it? */
TIGON_SHARED bool preference_is_plain(const tigon_preference_loss_fwd_problem *p) {
  return p->kind == TIGON_PREFERENCE_SIGMOID && !p->token_logprob && !p->counts.data && !p->shift && !p->nll_sequences;
}

#endif
